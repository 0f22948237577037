// Beside htmx: the stream of events, messages, times in the reader's zone, who signs. No library, no build step.

// One stream for each page, let go of while the page is hidden: browsers hold only six to a server.
class Stream extends EventTarget {
  constructor(url) {
    super();
    this.url = url;
    this.names = new Set();
    this.last = null;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.pause() : this.open()));
    addEventListener("pagehide", () => this.pause());
    addEventListener("pageshow", (event) => event.persisted && this.open());
    this.open();
  }
  get readyState() { return EventSource.OPEN; }
  open() {
    if (this.source || this.closed) return;
    this.source = new EventSource(this.last ? `${this.url}?since=${this.last}` : this.url);
    this.source.onopen = () => connection("open", "live");
    this.source.onerror = () => this.failed();
    for (const name of this.names) this.forward(name);
  }
  failed() {
    connection("lost", "reconnecting");
    if (this.source && this.source.readyState === EventSource.CLOSED) {
      this.pause();
      setTimeout(() => document.hidden || this.open(), 3000);
    }
  }
  pause() { this.source?.close(); this.source = null; }
  close() { this.closed = true; this.pause(); }
  forward(name) {
    this.source.addEventListener(name, (event) => {
      this.last = event.lastEventId;
      this.dispatchEvent(new MessageEvent(name, { data: event.data, lastEventId: event.lastEventId }));
    });
  }
  addEventListener(name, listener) {
    super.addEventListener(name, listener);
    if (this.names.has(name)) return;
    this.names.add(name);
    if (this.source) this.forward(name);
  }
}
htmx.createEventSource = (url) => new Stream(url);

function connection(state, words) {
  const place = document.getElementById("connection");
  if (!place || place.dataset.state === state) return;
  place.dataset.state = state;
  place.textContent = words;
}

function say(words) {
  const box = document.createElement("div");
  box.className = "message error";
  box.setAttribute("role", "alert");
  const text = document.createElement("p");
  text.textContent = words;
  box.append(text);
  box.insertAdjacentHTML("beforeend",
    '<button class="plain close" type="button" data-close aria-label="Close the message">✕</button>');
  document.getElementById("message")?.replaceChildren(box);
}

function localTimes(root) {
  const same = (a, b) => a.toDateString() === b.toDateString();
  for (const each of root.querySelectorAll("time[datetime]")) {
    const time = new Date(each.dateTime);
    if (Number.isNaN(time.valueOf())) continue;
    const clock = time.toLocaleTimeString([], { hour12: false });
    each.textContent = same(time, new Date()) ? clock : `${time.toLocaleDateString()} ${clock}`;
    each.title = each.dateTime;
  }
}

// Answers that are not ours to show as they are: refusals as JSON, and none at all.
document.addEventListener("htmx:beforeSwap", (event) => {
  const { xhr } = event.detail;
  if ((xhr.getResponseHeader("content-type") || "").startsWith("text/html")) return;
  event.detail.shouldSwap = false;
  if (xhr.status < 400 || xhr.getResponseHeader("HX-Redirect")) return;
  try { say(JSON.parse(xhr.responseText).error); } catch { say(`The service answered ${xhr.status}.`); }
});
document.addEventListener("htmx:sendError", (event) => {
  if (event.detail.requestConfig.verb !== "get") say("The service cannot be reached; nothing was changed. Try again.");
});

// Who signs, where no token says it; kept in this browser.
document.addEventListener("htmx:configRequest", (event) => {
  const name = document.getElementById("sign")?.value.trim();
  if (name && event.detail.verb !== "get") event.detail.parameters.by = name;
});

// Paused views, and those at which somebody is working, are not changed under their hands.
document.addEventListener("htmx:beforeRequest", (event) => {
  const { elt, requestConfig } = event.detail;
  if (requestConfig.verb !== "get") return;
  const cause = requestConfig.triggeringEvent?.type || "";
  const byItself = cause === "" || cause.startsWith("sse:");
  const paused = elt.id === "live" && document.getElementById("pause").getAttribute("aria-pressed") === "true";
  if (byItself && (paused || (elt.hasAttribute("data-guarded") && busy(elt)))) {
    event.preventDefault();
    if (!paused) document.getElementById("stale").hidden = false;
  }
});
const busy = (place) => place.matches(":hover, :focus-within") || place.querySelector(":checked:not(option), [open]") ||
  [...place.querySelectorAll("input[name=name]")].some((input) => input.value);

document.addEventListener("click", (event) => {
  const on = (selector) => event.target.closest(selector);
  if (on("[data-close]")) document.getElementById("message").replaceChildren();
  if (on("[data-close-why]")) document.getElementById("why")?.replaceChildren();
  if (on("#stale")) htmx.trigger("#groups", "refresh");
  const pause = on("#pause");
  if (pause) {
    const paused = pause.getAttribute("aria-pressed") !== "true";
    pause.setAttribute("aria-pressed", paused);
    if (!paused) htmx.trigger("#live", "changed");
  }
  for (const menu of document.querySelectorAll("details[open]:is(.menu, .keys)"))
    if (!menu.contains(event.target)) menu.open = false;
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    const menu = event.target.closest?.("details[open]:is(.menu, .keys)");
    if (menu) { menu.open = false; menu.querySelector("summary").focus(); } else document.getElementById("why")?.replaceChildren();
  }
  const typing = event.target.matches?.("input:not([type=checkbox]), select") && event.target.value;
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z" && !event.shiftKey && !typing) {
    const undo = document.querySelector("[data-undo] button");
    if (undo) { event.preventDefault(); undo.click(); }
  }
});

document.addEventListener("htmx:afterSettle", (event) => localTimes(event.detail.target ?? document));
document.addEventListener("DOMContentLoaded", () => {
  localTimes(document);
  const sign = document.getElementById("sign");
  if (!sign) return;
  sign.value = localStorage.getItem("sign") || "";
  sign.addEventListener("change", () => localStorage.setItem("sign", sign.checkValidity() ? sign.value : ""));
});
