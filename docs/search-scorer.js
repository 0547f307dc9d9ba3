// Titles weigh more than in Sphinx itself, because a title names the task of its page.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: {0: 15, 1: 5, 2: -5},
  objPrioDefault: 0,
  title: 60,
  partialTitle: 25,
  term: 5,
  partialTerm: 2,
};
