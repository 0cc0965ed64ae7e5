"""The viewer: a run as one page that can be filtered, sorted and looked into, and as traces for other viewers.

A report is a document: it says what was found, once, in the order in which a reader needs it. Whoever does not believe
it, or wants the other trial, needs a tool. This is that tool, and it must not become a second opinion, so:

* every verdict, sentence and count on the page is the report's own: made in Python, from the same records, and passed
  on as text. The script filters, sorts and draws; it judges nothing.
* a picture says no more than the marks that were kept. What lies between two marks is the phase that the first one
  began; after the last mark nothing is known but that no other came; marks that were not kept are a gap of their own;
  a block that has not said that it is done is not named.
* it is one file without a request: style, script and data are inside, and the page's own policy lets no other script
  run than ours, by its hash. Data are JSON that goes through the same door as ``report.json`` (names, secrets and
  controls are hidden there) and reach the page as text only, never as HTML.

What does not work: drawing in Python (a picture for each of 500 trials is 100 MB), a framework (a megabyte to pass on
with each run), and one trace for all clocks (trials of one run may overlap, so each is a process of its own in the
trace, at the place where it began).
"""
