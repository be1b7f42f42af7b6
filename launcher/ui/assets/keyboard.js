// What Dash's components lack for a keyboard and a screen reader: names, an order of focus, and a place for the focus of a
// button that its own click removes or disables.
(function () {
  "use strict";

  // Dash's choosers are reached through a hidden field that no screen reader names, and named by their value alone: here
  // the button itself is reached, and named by its label as well. Open lists and the field of Dash's upload have no name.
  function name() {
    document.querySelectorAll(".dash-dropdown-focus-target:not([tabindex='-1'])").forEach((each) => { each.tabIndex = -1; });
    document.querySelectorAll("button.dash-dropdown[id]").forEach((each) => {
      const label = document.querySelector(`label[for="${each.id}"]`);
      if (each.tabIndex !== 0) { each.tabIndex = 0; }
      if (!label) { return; }
      label.id = `${each.id}-label`;
      if (!each.getAttribute("aria-labelledby").startsWith(label.id)) {
        each.setAttribute("aria-labelledby", `${label.id} ${each.id}-value`);
      }
      const list = document.getElementById(each.getAttribute("aria-controls"));
      const call = (found, text) => found.forEach((one) => {
        if (one.getAttribute("aria-label") !== text) { one.setAttribute("aria-label", text); }
      });
      if (list) {
        call([list, ...list.querySelectorAll("[role=listbox]")], label.innerText);
        call(list.querySelectorAll("input[type=search]"), `Search ${label.innerText.toLowerCase()}`);
      }
    });
    document.querySelectorAll("#upload input[type=file]:not([aria-label])").forEach((each) => {
      each.setAttribute("aria-label", "Script or configuration");
    });
  }

  // A button that is gone after its click: the focus goes to the button beside it, else to the part of the page that it was
  // in, else (a part that is hidden now) to the part that is shown.
  let pressed = null;
  const usable = (each) => each.isConnected && !each.disabled && each.offsetParent !== null;
  document.addEventListener("click", ({ target }) => {
    const button = target.closest("button");
    pressed = button && { button, beside: button.parentElement, part: button.closest("section.verdict") };
  }, true);
  document.addEventListener("keydown", ({ key }) => { if (key === "Tab") { pressed = null; } }, true);
  function refocus() {
    if (!pressed || usable(pressed.button) || document.activeElement !== document.body) { return; }
    const { beside, part } = pressed;
    const next = (beside.isConnected && [...beside.querySelectorAll("button")].find(usable)) || part
      || document.querySelector(".part-tab.selected");
    if (!next) { return; }
    if (next === part) { part.tabIndex = -1; }
    next.focus();
    pressed = null;
  }

  // An answer is drawn in steps: the button beside may be enabled a moment after this one is disabled.
  let waiting = 0;
  const soon = () => { clearTimeout(waiting); waiting = setTimeout(refocus, 100); };
  new MutationObserver(() => { name(); if (pressed) { soon(); } }).observe(
    document.documentElement, { childList: true, subtree: true, attributes: true, attributeFilter: ["disabled", "hidden"] });
})();
