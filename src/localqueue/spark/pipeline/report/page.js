"use strict";
// Without this script the page shows all queues one below the other, and no numbers at the pointer.
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");

  // --- light and dark ---
  const button = document.getElementById("theme");
  button.hidden = false;
  button.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  // --- one queue at a time ---
  const sections = [...document.querySelectorAll("section.queue")];
  const links = [...document.querySelectorAll("nav a")];
  const choose = () => {
    const wanted = sections.find((section) => "#" + section.id === location.hash) || sections[0];
    for (const section of sections) section.classList.toggle("chosen", section === wanted);
    for (const link of links) {
      const chosen = wanted && link.getAttribute("href") === "#" + wanted.id;
      link.classList.toggle("chosen", Boolean(chosen));
      if (chosen) link.parentElement.scrollLeft = link.offsetLeft - 40;
    }
  };
  addEventListener("hashchange", choose);
  choose();

  // --- numbers at the pointer ---
  const digits = (value) => {
    if (value >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
    return String(Number(value.toFixed(value >= 10 ? 1 : 2)));
  };
  const count = (value) => {
    for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (value >= (size === 1e3 ? 1e4 : size)) return digits(value / size) + letter;
    }
    return digits(value);
  };
  const show = {
    count,
    duration: (value) => {
      for (const [size, name] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) {
        if (value >= size * 0.9995) return digits(value / size) + " " + name;
      }
      return "0 s";
    },
    percent: (value) => digits(value * 100) + " %",
    times: (value) => digits(value) + "×",
  };
  const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ");
  const make = (tag, name, text) => {
    const made = document.createElement(tag);
    made.className = name;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  for (const section of sections) {
    const data = JSON.parse(section.querySelector("script").textContent);
    const plots = [...section.querySelectorAll(".plot")];
    plots.forEach((plot, index) => {
      const curves = data.charts[index];
      const { unit, suffix } = plot.parentElement.dataset;
      const spans = curves[0][2].length;
      const cursor = make("div", "cursor");
      const tip = make("div", "tip");
      const leave = () => { cursor.remove(); tip.remove(); };
      plot.addEventListener("pointermove", (event) => {
        const box = plot.getBoundingClientRect();
        const span = Math.max(0, Math.min(spans - 1, Math.floor(((event.clientX - box.left) / box.width) * spans)));
        const at = ((span + 0.5) / spans) * 100;
        tip.replaceChildren(make("b", "", clock(data.start + span * data.width)));
        for (const [name, tone, values] of curves) {
          const row = make("div", tone);
          row.append(make("span", "", name), make("b", "", values[span] === null ? "–" : show[unit](values[span]) + suffix));
          tip.append(row);
        }
        cursor.style.left = at + "%";
        tip.style.left = at < 50 ? `calc(${at}% + 10px)` : "auto";
        tip.style.right = at < 50 ? "auto" : `calc(${100 - at}% + 10px)`;
        plot.append(cursor, tip);
      });
      plot.addEventListener("pointerleave", leave);
      plot.addEventListener("pointercancel", leave);
    });
  }
})();
