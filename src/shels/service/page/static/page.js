// Beside htmx: the stream of events, messages, times in the reader's zone, who signs. No library, no build step.

// One stream for each page, let go of while the page is hidden: browsers hold only six to a server.
// "observed.3000" is the event "observed" at most every 3000 ms, the last one never lost (htmx's own throttle
// drops it, and other triggers of the same element with it).
class Stream extends EventTarget {
  constructor(url) {
    super();
    this.url = url;
    this.names = new Set();
    this.told = new Map(); // when each was told last
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
    const [kind, pause] = name.split(".");
    let waits = false;
    this.source.addEventListener(kind, (event) => {
      this.last = event.lastEventId;
      if (waits) return;
      waits = true;
      const rest = Math.max(0, (this.told.get(name) ?? 0) + Number(pause ?? 0) - performance.now());
      setTimeout(() => {
        waits = false;
        this.told.set(name, performance.now());
        this.dispatchEvent(new MessageEvent(name, { data: event.data }));
      }, rest);
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
const working = (place) => place.matches(":hover, :focus-within") || place.querySelector(":checked:not(option), [open]") ||
  [...place.querySelectorAll("input[name=name]")].some((input) => input.value);
function left(elt, config) { // whether a part is to stay as it is
  const cause = config.triggeringEvent?.type || "";
  if (config.verb !== "get" || (cause !== "" && !cause.startsWith("sse:"))) return false;
  if (elt.id === "live")
    return document.getElementById("pause").ariaPressed === "true" || elt.querySelector(".strip a:is(:hover, :focus)");
  if (elt.id !== "groups" || !working(elt)) return false;
  document.getElementById("stale").hidden = false;
  return true;
}
document.addEventListener("htmx:beforeRequest", (event) => {
  if (left(event.detail.elt, event.detail.requestConfig)) event.preventDefault();
});
document.addEventListener("htmx:beforeSwap", (event) => {
  if (left(event.detail.elt, event.detail.requestConfig)) event.detail.shouldSwap = false;
});

// A message that something changed: what is shown is out of date, also the place from which it was asked.
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target.id !== "message" || !event.detail.target.querySelector("[data-changed]")) return;
  document.getElementById("why")?.replaceChildren();
  htmx.trigger(document.body, "changed");
});

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
