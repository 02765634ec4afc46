// Package manifestwords describes the errors of a manifest so that a person can correct them: the
// line, the value, what to write instead, and which field a misspelt one may be.
//
// All functions are functions of texts. Callers limit their size: see package manifestguard.
package manifestwords
