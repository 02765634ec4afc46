// Package manifestwords describes errors in a manifest so that a person can correct them. It finds
// the line and the value of an error, proposes a correct value, and suggests a field in place of a
// misspelt one.
//
// All functions are pure. Callers limit the size of the texts: see package manifestguard.
package manifestwords
