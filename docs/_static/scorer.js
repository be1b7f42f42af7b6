// Pages that answer a task come before those that only mention its words: reference, records, changes.
var Scorer = {
  score: ([docname, title, anchor, descr, score, filename]) => {
    if (/(^|\/)(start|guides)\//.test(docname)) return score + 12;
    // A field or rule by its name.
    if (/reference\/(fields|rules)/.test(docname) && anchor) return score + 14;
    if (/^(CHANGELOG|CONTRIBUTING)$/.test(docname)) return score - 12;
    return /reference\/(arguments|rules)/.test(docname) ? score - 6 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: {0: 15, 1: 5, 2: -5},
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
