// There is a page, and
// nobody
// reads it.
const nobody = "who is it"; // The button does the same.
/* What it has,
   it keeps. */
