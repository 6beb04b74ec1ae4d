"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");

  const button = document.getElementById("theme");
  const name = document.getElementById("theme-name");
  const dark = () => root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  const told = () => { name.textContent = dark() ? "light" : "dark"; };
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    told();
    document.dispatchEvent(new CustomEvent("memdoctor:theme"));
  });
  told();

  for (const field of document.querySelectorAll("input[data-filters]")) {
    const table = document.getElementById(field.dataset.filters);
    const rows = [...table.tBodies[0].rows].map((row) => [row, row.textContent.toLowerCase()]);
    const count = document.getElementById("tensor-count");
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const [row, text] of rows) {
        row.hidden = !words.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      }
      if (count && table.id === "tensors") count.textContent = words.length ? `${shown} of ${rows.length}` : "";
    });
  }

  const value = (cell) => {
    const data = cell.querySelector("data");
    if (data) return Number(data.value);
    const number = Number.parseFloat(cell.textContent);
    return cell.classList.contains("number") ? (Number.isNaN(number) ? -Infinity : number) : cell.textContent.trim();
  };
  const compare = (one, two) => (typeof one === "number" && typeof two === "number"
    ? one - two
    : String(one).localeCompare(String(two), "en"));
  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const sort = document.createElement("button");
      sort.type = "button";
      sort.append(...head.childNodes);
      head.append(sort);
      sort.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") === "descending"
          || (!head.hasAttribute("aria-sort") && !head.classList.contains("number"));
        for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const body = table.tBodies[0];
        const rows = [...body.rows].map((row, at) => [value(row.cells[column]), at, row]);
        rows.sort((one, two) => (compare(one[0], two[0]) || one[1] - two[1]) * (up ? 1 : -1));
        body.append(...rows.map((row) => row[2]));
      });
    });
  }

  for (const text of document.querySelectorAll("pre.copy")) {
    const around = document.createElement("div");
    around.className = "copied";
    text.replaceWith(around);
    const copy = document.createElement("button");
    copy.type = "button";
    copy.textContent = "Copy";
    copy.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text.textContent);
        copy.textContent = "Copied";
      } catch {
        const range = document.createRange();
        range.selectNodeContents(text);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        copy.textContent = "Selected";
      }
      setTimeout(() => { copy.textContent = "Copy"; }, 2000);
    });
    around.append(text, copy);
  }

  const peak = document.getElementById("peak-tensors");
  if (peak) document.addEventListener("memdoctor:peak", () => {
    peak.scrollIntoView();
    peak.focus({ preventScroll: true });
  });

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const part of closed) part.open = true;
  });
  addEventListener("afterprint", () => { for (const part of closed) part.open = false; });
})();
