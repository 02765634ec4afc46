// Package manifestwords describes the errors of a manifest so that a person can correct them. It
// finds the line and the value, tells what to write instead, and suggests a field for a misspelt
// one.
//
// All functions are pure. Callers limit the size of the texts: see package manifestguard.
package manifestwords
