// The state of the page is a list of overrides, edited here and judged on the server. Nothing is computed here.
(function () {
  "use strict";
  const GROUPS = ["recipe", "model", "task", "backend", "hardware", "cluster", "strategy"];
  const WHOLE = ["recipe", "strategy"];
  // Bounds of the link; the server checks what it is sent again.
  const LONGEST_LINK = 8000, MOST_WORDS = 600, MOST_UNDO = 50, TYPING_MS = 250, LARGEST_UPLOAD = 2 * 1024 * 1024;
  let asked = 0;

  const noUpdate = () => window.dash_clientside.no_update;  // Dash's renderer sets it after this file is read

  const keyOf = (word) => word.replace(/^\++/, "").split("=", 1)[0];
  const valueOf = (word) => word.slice(word.indexOf("=") + 1);
  const find = (words, key) => {
    const word = words.find((each) => each.includes("=") && keyOf(each) === key);
    return word === undefined ? null : valueOf(word);
  };
  function set(words, key, value) {
    const rest = words.filter((word) => keyOf(word) !== key);
    if (value === null || value === undefined || value === "") {
      return rest;
    }
    const word = (WHOLE.includes(key) ? "+" : "") + key + "=" + value;
    const at = words.findIndex((each) => keyOf(each) === key);
    return at < 0 ? [...words, word] : words.map((each, i) => (i === at ? word : each)).filter(
      (each, i) => i === at || keyOf(each) !== key);
  }
  // A pasted command (`launch run a=b c=d`, also over several lines) is its overrides; any other line is one override.
  const SHELL_WORD = /(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+/g;
  const unquoted = (word) => word.replace(/'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)/g,
    (all, single, double, plain) => single ?? (double === undefined ? plain : double.replace(/\\(["\\$`])/g, "$1")));
  const isOverride = (word) => /^\+{0,2}[A-Za-z_][\w-]*\.[\w.-]+=/.test(word)
    || (/^\+{0,2}\w+=/.test(word) && GROUPS.includes(keyOf(word)));
  function ofLine(line) {
    const found = (line.match(SHELL_WORD) || []).map(unquoted), isCommand = /^(\$\s+)?launch\s/.test(line);
    if (isCommand) {
      const rest = found.slice(found.indexOf("launch") + 1);
      return rest.length && /^[a-z-]+$/.test(rest[0]) ? rest.slice(1) : rest;
    }
    return found.length > 1 && found.every(isOverride) ? found : [line];
  }
  const lines = (text) => (text || "").replace(/\\\n/g, " ").split("\n").map((line) => line.trim()).filter((line) => line)
    .flatMap(ofLine);
  const encoded = (word) => encodeURIComponent(word).replace(/%(3D|2B|2F|2C|3A|5B|5D|40)/g, decodeURIComponent);
  const linkOf = (words) => words.map(encoded).join("&");
  function fromLink(hash) {
    const text = (hash || "").replace(/^#/, "");
    if (!text || text.length > LONGEST_LINK) { return []; }
    try {
      return text.split("&").map(decodeURIComponent).filter((word) => word.includes("=")).slice(0, MOST_WORDS);
    } catch (error) {
      return [];  // a cut or damaged link
    }
  }
  const same = (one, other) => one.length === other.length && one.every((word, i) => word === other[i]);
  // What a callback was called for: ids as they are in the layout, and the value of each.
  const triggers = () => window.dash_clientside.callback_context.triggered.map(({ prop_id: name, value }) => {
    const id = name.slice(0, name.lastIndexOf("."));
    return { id: id.startsWith("{") ? JSON.parse(id) : id, value };
  });

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    planner: {
      // Inputs: choosers and fields, buttons, text, undo, clear, incoming, hash; states: their ids, words, history,
      // and what each chooser offers.
      edit: function (recipe, model, task, backend, version, hardware, nodes, devices, fields, applied, text, undo,
        clear, incoming, hash, fieldIds, words, history, ...lists) {
        const before = words || [], choosers = {
          recipe, model, task, backend, "backend.version": version, hardware, "cluster.nodes": nodes,
          "cluster.devices_per_node": devices,
        };
        let after = words ? before : fromLink(hash), past = history || [], typed = false, undone = false;
        // Dash gathers triggers: a click may come together with fields and buttons that have just been drawn.
        for (const { id, value } of words ? triggers() : []) {
          if (id === "location") {
            after = fromLink(hash);
          } else if (id === "text") {
            after = lines(text);
            typed = true;
          } else if (id === "undo") {
            undone = past.length > 0;
            if (undone) { after = past[past.length - 1]; }
          } else if (id === "clear") {
            after = [];
          } else if (id === "incoming") {
            if (incoming) { after = incoming.words; }
          } else if (id.type === "field") {
            // A field that has just been drawn has no value yet, which is no edit; an emptied one has "".
            if (typeof value === "string") { after = set(after, id.path, value); }
          } else if (id.type === "apply") {
            if (value) { after = id.words.split("\n").reduce((all, word) => set(all, keyOf(word), valueOf(word)), after); }
          } else {
            const key = id.slice("choose-".length).replace("__", "."), offered = lists[Object.keys(choosers).indexOf(key)];
            // Dash empties a chooser whose value is not on its list: a model by its name on the hub, or a version whose
            // list has not come yet. Only a value that can be seen can be removed.
            const unseen = !choosers[key] && offered && !offered.some((each) => each.value === find(after, key));
            if (!unseen) { after = set(after, key, choosers[key]); }
            if (key === "backend" && !unseen) { after = set(after, "backend.version", null); }
          }
        }
        const changed = !words || !same(before, after);
        if (undone) {
          past = past.slice(0, -1);
        } else if (changed && words) {
          past = [...past, before].slice(-MOST_UNDO);
        }
        const of = (key) => find(after, key);
        // What is not on the list is named by the placeholder, from the answer of the server.
        const listed = ["recipe", "model", "task", "backend"].map((key, i) => (
          (lists[i] || []).some((each) => each.value === of(key)) ? of(key) : null));
        return [
          changed ? after : noUpdate(), past, ...listed, of("backend.version"), of("hardware"), of("cluster.nodes") || "", of("cluster.devices_per_node") || "",
          fieldIds.map((id) => of(id.path) || ""), typed ? noUpdate() : after.join("\n"), !past.length, !after.length,
        ];
      },

      // The server is asked when typing pauses; an older question that waits is dropped.
      ask: function (words) {
        const number = ++asked;
        return new Promise((resolve) => {
          setTimeout(() => resolve(number === asked ? (words || []) : noUpdate()), TYPING_MS);
        });
      },

      link: function (words) {
        const text = linkOf(words || []);
        const path = window.location.pathname;
        if (text.length > LONGEST_LINK) {
          window.history.replaceState(null, "", path);
          return ["", "This job is too long for a link: download its YAML."];
        }
        window.history.replaceState(null, "", text ? path + "#" + text : path);
        return [window.location.origin + path + (text ? "#" + text : ""), ""];
      },

      copy: function (clicks, link) {
        if (!clicks || !link) { return noUpdate(); }
        return navigator.clipboard.writeText(window.location.href).then(() => "Link copied.", () => "Copy the address of this page.");
      },

      adopt: function (clicks, words) {
        return clicks && words ? { words: words, at: clicks } : noUpdate();
      },

      tab: function (clicks, incoming, ids) {
        const trigger = window.dash_clientside.callback_context.triggered_id;
        const name = trigger && trigger.type === "tab" ? trigger.name : "Fields";
        return [
          name, ids.map((id) => id.name !== name), ids.map((id) => (id.name === name ? "part-tab selected" : "part-tab")),
          ids.map((id) => (id.name === name ? "page" : "false")),
        ];
      },

      // A file stays in the browser until it is known to be small enough.
      uploaded: function (contents, name) {
        const none = noUpdate();
        if (!contents) { return [none, none, none, none]; }
        const size = Math.floor((contents.length - contents.indexOf(",") - 1) * 3 / 4);
        if (size > LARGEST_UPLOAD) {
          const mib = (size / 1048576).toFixed(1);
          return [none, none, `${name} is refused: it has ${mib} MiB; a script or configuration has at most 2 MiB.`, none];
        }
        const bytes = Uint8Array.from(atob(contents.slice(contents.indexOf(",") + 1)), (char) => char.charCodeAt(0));
        try {
          const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
          const ending = (name.match(/\.[a-z]+$/i) || [""])[0].toLowerCase().replace(".yml", ".yaml").replace(".bash", ".sh");
          return [text, name, `${name} is shown below.`, [".sh", ".yaml", ".json", ".txt"].includes(ending) ? ending : none];
        } catch (error) {
          return [none, none, `${name} is refused: it is not UTF-8 text.`, none];
        }
      },
    },
  });
})();
