// Checks the report in the frame for what a reader would see, and writes the findings into the page.
// Runs in the page around the frame, because the report itself has no scripts and forbids them.
"use strict";

const LEAST_CONTRAST = 4.5, LEAST_CONTRAST_LARGE = 3, LEAST_TEXT = 9.5;

function luminance([r, g, b]) {
  const linear = (v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
}

function contrast(a, b) {
  const [x, y] = [luminance(a), luminance(b)];
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
}

function colour(text) {
  const parts = (text.match(/[\d.]+/g) || []).map(Number);
  return { rgb: parts.slice(0, 3), opaque: parts.length === 3 || parts[3] > 0.99 };
}

function background(view, element) {
  for (let e = element; e; e = e.parentElement) {
    const c = colour(view.getComputedStyle(e).backgroundColor);
    if (c.rgb.length === 3 && c.opaque) return c.rgb;
  }
  return [255, 255, 255];
}

function visible(element) {
  const box = element.getBoundingClientRect();
  return box.width > 0 && box.height > 0;
}

function name(element) {
  const text = (element.textContent || "").trim().slice(0, 40);
  return `${element.tagName.toLowerCase()}.${element.getAttribute("class") || ""} "${text}"`;
}

function probe(view, width) {
  const found = [];
  const page = view.document;
  const overflow = page.documentElement.scrollWidth - width;
  if (overflow > 0) found.push(`the page is ${overflow} px too wide`);

  const charts = [...page.querySelectorAll("svg.chart")].filter(visible);
  for (const chart of charts) {
    // the drawing for a phone has the title of both
    const named = page.getElementById((chart.getAttribute("aria-labelledby") || "").split(" ")[0]);
    const title = (named || chart.querySelector("title")).textContent;
    const scale = chart.getBoundingClientRect().width / chart.viewBox.baseVal.width;
    const texts = [...chart.querySelectorAll("text")].filter(visible);
    const boxes = texts.map((t) => t.getBoundingClientRect());
    texts.forEach((text, i) => {
      const size = parseFloat(view.getComputedStyle(text).fontSize) * scale;
      if (size < LEAST_TEXT) found.push(`${title}: ${name(text)} is only ${size.toFixed(1)} px high`);
      if (boxes[i].left < -1 || boxes[i].right > width + 1) found.push(`${title}: ${name(text)} leaves the page`);
      for (let j = 0; j < i; j++) {
        const across = Math.min(boxes[i].right, boxes[j].right) - Math.max(boxes[i].left, boxes[j].left);
        const down = Math.min(boxes[i].bottom, boxes[j].bottom) - Math.max(boxes[i].top, boxes[j].top);
        // the box of a text reaches a little above and below its letters
        if (across > 1 && down > 4) found.push(`${title}: ${name(text)} lies on ${name(texts[j])}`);
      }
    });
  }

  let texts = 0;
  for (const element of page.body.querySelectorAll("*")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !visible(element) || element.closest("title, desc")) continue;
    texts++;
    const style = view.getComputedStyle(element);
    const drawn = element.closest("svg") ? style.fill : style.color;
    const ratio = contrast(colour(drawn).rgb, background(view, element));
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.6 && style.fontWeight >= 600);
    if (ratio < (large ? LEAST_CONTRAST_LARGE : LEAST_CONTRAST))
      found.push(`${name(element)} has a contrast of only ${ratio.toFixed(2)}`);
  }

  // what is drawn in a colour of its own must stand out from the page (3 to 1, WCAG 1.4.11)
  const look = view.getComputedStyle(page.documentElement);
  const probe = page.createElement("span");
  page.body.append(probe);
  for (let i = 0; i < 8; i++) {
    probe.style.color = look.getPropertyValue(`--c${i}`);
    const ratio = contrast(colour(view.getComputedStyle(probe).color).rgb, background(view, page.body));
    if (ratio < 3) found.push(`colour ${i} has a contrast of only ${ratio.toFixed(2)}`);
  }
  probe.remove();

  const loaded = view.performance.getEntriesByType("resource").map((e) => e.name);
  for (const url of loaded) if (!url.startsWith("data:")) found.push(`the page asked for ${url}`);
  return { charts: charts.length, texts, found, height: page.documentElement.scrollHeight };
}

const frame = document.getElementById("report");
frame.addEventListener("load", () => {
  const width = Number(frame.getAttribute("width"));
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const folded = probe(frame.contentWindow, width);
  for (const d of frame.contentDocument.querySelectorAll("details")) d.open = true;
  const unfolded = probe(frame.contentWindow, width);
  const answer = {
    dark, charts: folded.charts, texts: unfolded.texts, height: folded.height,
    found: [...new Set([...folded.found, ...unfolded.found])],
  };
  frame.remove();
  document.body.innerHTML = "";
  const out = document.createElement("pre");
  out.id = "answer";
  out.textContent = JSON.stringify(answer);
  document.body.append(out);
});
