// Package manifestwords says what is wrong with a manifest in words that lead to the change:
// the line, the value, what to write instead, and what a misspelt field may be meant to be.
//
// Everything is a function of texts. Callers bound them before: see package manifestguard.
package manifestwords
