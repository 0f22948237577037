"""How a page looks: one style sheet, for screens of any width and for paper."""

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: #1d2329; line-height: 1.6; font-size: 17px;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif;
  -webkit-text-size-adjust: 100%; overflow-wrap: break-word; }
main { max-width: 900px; margin: 0 auto; padding: 56px 24px 48px; }
h1 { font-size: 2.1rem; line-height: 1.2; letter-spacing: -0.015em; margin: 0 0 14px; font-weight: 680; }
h2 { font-size: 1.35rem; line-height: 1.3; margin: 0 0 10px; font-weight: 650; }
h3 { font-size: 1rem; margin: 22px 0 10px; font-weight: 650; }
h3 small { font-weight: 400; color: #5b6671; font-size: .9rem; margin-left: 6px; }
p { margin: 0 0 14px; max-width: 44em; }
.lead { font-size: 1.18rem; line-height: 1.5; color: #46515c; margin: 0; }
section { margin-top: 48px; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 0 28px;
  margin: 32px 0 0; }
.facts div { display: flex; flex-direction: column-reverse; justify-content: flex-end;
  border-top: 2px solid #0072b2; padding: 10px 0 14px; }
.facts dd { margin: 0; font-size: 1.9rem; line-height: 1.2; font-weight: 640; letter-spacing: -0.01em;
  font-variant-numeric: tabular-nums; }
.facts dt { font-size: .88rem; line-height: 1.35; color: #5b6671; }
.figures { display: flex; flex-wrap: wrap; gap: 20px 32px; margin: 18px 0 20px; }
figure { margin: 0; }
.drawing { flex: 1 1 340px; min-width: 0; break-inside: avoid; }
.drawing.wide { flex-basis: 100%; }
.drawing svg { display: block; width: 100%; height: auto; }
.drawing svg text { font-family: inherit !important; font-variant-numeric: tabular-nums; }
figcaption { font-size: .88rem; line-height: 1.45; color: #5b6671; margin-top: 8px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; line-height: 1.4; min-width: min(100%, 480px);
  margin: 14px 0 20px; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 650; padding-bottom: 6px; }
th, td { padding: 6px 0 6px 28px; text-align: right; border-bottom: 1px solid #e3e7ea; }
thead th { font-weight: 500; color: #5b6671; border-bottom: 1.5px solid #8a949d; vertical-align: bottom; }
th:first-child { text-align: left; padding-left: 0; font-weight: 500; }
th.left, td.left { text-align: left; }
tbody + tbody tr:first-child > * { border-top: 1.5px solid #b4bcc4; }
.grouped { font-size: .86rem; min-width: 100%; }
.grouped td, .grouped thead th + th { padding: 5px 0 5px 24px; white-space: nowrap; }
.grouped td.left { white-space: normal; }
.grouped th[scope^=row] { vertical-align: top; padding-top: 5px; }
.after { display: inline-block; width: 0; white-space: nowrap; text-indent: 3px; font-size: .85em; }
.best { font-weight: 700; }
.quiet { color: #5b6671; font-style: italic; }
.yes { color: #00664a; }
.no { color: #b34700; font-weight: 650; }
.note { font-size: .88rem; line-height: 1.45; color: #5b6671; margin: -10px 0 20px;
  max-width: 58em; }
nav { margin-top: 20px; display: flex; flex-wrap: wrap; gap: 2px 18px; font-size: .92rem; }
nav a { color: #00598c; text-decoration: none; }
nav a:hover { text-decoration: underline; }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(58px, 1fr)); gap: 12px 10px;
  max-width: 860px; }
.gallery figure { max-width: 76px; break-inside: avoid; }
.gallery img { display: block; width: 100%; image-rendering: pixelated; border-radius: 3px;
  border: 1px solid #d5dade; }
.gallery figcaption { font-size: .75rem; line-height: 1.35; margin-top: 4px; }
.gallery span { display: block; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.gallery span:first-child { color: #1d2329; font-weight: 600; }
details { margin-top: 48px; border-top: 1px solid #d5dade; padding-top: 14px; }
summary { cursor: pointer; font-weight: 650; }
section details { margin-top: 16px; border-top: 0; padding-top: 0; }
main > details td { overflow-wrap: anywhere; }
footer { margin-top: 32px; font-size: .85rem; color: #5b6671; }
@media (max-width: 560px) {
  body { font-size: 16px; }
  main { padding: 32px 16px; }
  h1 { font-size: 1.65rem; }
  .facts { grid-template-columns: 1fr 1fr; gap: 0 20px; }
  .facts dd { font-size: 1.55rem; }
  .drawing.wide svg { min-width: 600px; }
  table { font-size: .82rem; }
  th, td { padding-left: 10px; }
  .grouped { font-size: .8rem; }
  .grouped td, .grouped thead th + th { padding-left: 18px; }
  .grouped td.left { min-width: 9em; }
}
@media print {
  body { font-size: 10.5pt; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  main { max-width: none; padding: 0; }
  section { margin-top: 24pt; }
  h2, h3 { break-after: avoid; }
  tr { break-inside: avoid; }
}
"""
