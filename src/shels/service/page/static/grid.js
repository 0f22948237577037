// Pictures in a grid: click, shift-click, arrow keys; one tab stop for each group; a selection outlives a reload.

const boxesOf = (form) => [...form.querySelectorAll(".tile input")];
const formOf = (element) => element.closest?.("form[data-group]");
let anchor = null; // where a range begins
let held = false; // whether Shift is down

function count(form) {
  const number = boxesOf(form).filter((box) => box.checked).length;
  const rest = form.dataset.group === "rest";
  form.querySelector("[data-count]").textContent = number ? `${number} selected` : rest ? "" : form.dataset.size;
  const split = form.querySelector("[data-split]");
  split.disabled = rest && !number;
  if (!rest) split.textContent = number ? `Split ${number} off` : "Split where it divides best";
}

function stops(form, current) {
  for (const box of boxesOf(form)) box.tabIndex = -1;
  const stop = current || boxesOf(form)[0];
  if (stop) stop.tabIndex = 0;
}

function range(form, from, to, checked) {
  const boxes = boxesOf(form);
  const [low, high] = [boxes.indexOf(from), boxes.indexOf(to)].sort((a, b) => a - b);
  if (low >= 0) for (const box of boxes.slice(low, high + 1)) box.checked = checked;
}

addEventListener("pointerdown", (event) => { held = event.shiftKey; }, true);
addEventListener("keydown", (event) => { held = event.shiftKey; }, true);

document.addEventListener("change", (event) => {
  const box = event.target;
  const form = formOf(box);
  if (!form || !box.matches(".tile input")) return;
  if (held && anchor && formOf(anchor) === form) range(form, anchor, box, box.checked);
  anchor = box;
  stops(form, box);
  count(form);
});

document.addEventListener("keydown", (event) => {
  const box = event.target;
  const form = formOf(box);
  if (!form || !box.matches(".tile input")) return;
  const boxes = boxesOf(form);
  const at = boxes.indexOf(box);
  const wide = boxes.filter((each) => top(each) === top(boxes[0])).length || 1;
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: wide, ArrowUp: -wide, Home: -at, End: boxes.length - 1 - at };
  const select = event.ctrlKey || event.metaKey;
  if (event.key in steps) move(form, box, boxes[at + steps[event.key]], event.shiftKey);
  else if (select && event.key.toLowerCase() === "a") boxes.forEach((each) => { each.checked = true; });
  else if (event.key === "Escape") boxes.forEach((each) => { each.checked = false; });
  else if (event.key.toLowerCase() === "w" && !select) box.closest(".tile").querySelector(".ask").click();
  else return;
  event.preventDefault();
  count(form);
});
const top = (box) => box.closest(".tile").offsetTop;

function move(form, from, to, extend) {
  if (!to) return;
  if (extend) {
    if (!anchor || formOf(anchor) !== form) anchor = from;
    range(form, anchor, to, true);
  } else anchor = to;
  stops(form, to);
  to.focus();
}

// What was selected, typed and focused is so again after the groups were fetched anew: at once, settle:0ms, for
// what is typed in between would be lost.
let kept = null;
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target.id !== "groups") return;
  const groups = event.detail.target;
  const forms = [...groups.querySelectorAll("form[data-group]")];
  const names = Object.fromEntries(forms.map((form) => [form.id, form.elements.name.value]));
  const active = document.activeElement;
  kept = {
    names,
    checked: new Set([...groups.querySelectorAll(".tile input:checked")].map((box) => box.value)),
    place: groups.contains(active) ? forms.indexOf(formOf(active)) : -1,
    image: active.matches(".tile input") ? active.value : null,
  };
});
document.addEventListener("htmx:afterSettle", (event) => {
  const groups = document.getElementById("groups");
  if (event.detail.target.id === "groups" && kept) restore(groups);
  if (groups?.contains(event.detail.target)) prepare(groups);
});

function restore(groups) {
  document.getElementById("stale").hidden = true;
  const forms = [...groups.querySelectorAll("form[data-group]")];
  for (const box of groups.querySelectorAll(".tile input")) box.checked = kept.checked.has(box.value);
  for (const form of forms) form.elements.name.value = kept.names[form.id] || "";
  if (kept.place >= 0 && !groups.contains(document.activeElement)) {
    const image = groups.querySelector(`.tile input[value="${kept.image}"]`);
    const next = forms[Math.min(kept.place, forms.length - 1)];
    (image || next?.elements.name || document.getElementById("main")).focus();
  }
}

function prepare(groups) {
  for (const form of groups.querySelectorAll("form[data-group]")) {
    stops(form, boxesOf(form).find((box) => box === document.activeElement));
    count(form);
  }
}

// A name that was learned is not there to be learned again.
document.addEventListener("htmx:afterRequest", (event) => {
  const { elt, successful } = event.detail;
  if (successful && elt.matches("form[data-group]")) {
    elt.elements.name.value = "";
    boxesOf(elt).forEach((box) => { box.checked = false; });
  }
});
document.addEventListener("DOMContentLoaded", () => {
  const groups = document.getElementById("groups");
  if (groups) prepare(groups);
});
