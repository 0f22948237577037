// What an accessibility checker would find, by hand; run in the page by the tests.
// Every text whose contrast is below WCAG AA (relative luminance as WCAG 2.2 defines it).
window.faint = () => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const colour = (text) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const over = (top, below) => top.slice(0, 3).map((c, i) => c * top[3] / 255 + below[i] * (1 - top[3] / 255));
  const behind = (e) => { const c = colour(getComputedStyle(e).backgroundColor);
    return c[3] === 255 || !e.parentElement ? (c[3] ? c.slice(0, 3) : [255, 255, 255]) : over(c, behind(e.parentElement)); };
  const light = (rgb) => rgb.map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const bad = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n = walk.nextNode(); n; n = walk.nextNode()) {
    const e = n.parentElement, style = getComputedStyle(e);
    if (!n.data.trim() || !e.checkVisibility() || e.closest("svg, option, script, datalist")) continue;
    const [a, b] = [light(over(colour(style.color), behind(e))), light(behind(e))].sort((x, y) => y - x);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.7 && style.fontWeight >= 700);
    if ((a + 0.05) / (b + 0.05) < (large ? 3 : 4.5)) bad.push(`${n.data.trim()}: ${((a + 0.05) / (b + 0.05)).toFixed(2)}`);
  }
  return bad;
};
// What a screen reader could not name: controls without a label, pictures without an alternative.
window.unnamed = () => [...document.querySelectorAll("input:not([type=hidden]), select, button, summary, a[href], img, progress")]
  .filter((e) => e.tagName === "IMG" ? !e.hasAttribute("alt") : !(e.getAttribute("aria-label") || e.textContent.trim() ||
    [...(e.labels || [])].some((l) => l.textContent.trim() || l.querySelector("img[alt]:not([alt=''])"))))
  .map((e) => e.outerHTML.slice(0, 120));
