// Package podtext formats pods, events and other objects for people: the tables and
// descriptions in the output of the agent's commands.
//
// Names, messages and values come from manifests, images and containers. All of them pass
// [OneLine], so that they cannot break a line or send control characters to the terminal.
package podtext

import (
	"strings"
	"unicode"
)

// OneLine returns s as one line for a terminal: a single blank replaces each sequence of
// white space and control characters.
func OneLine(s string) string {
	blank := func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }
	return strings.Join(strings.FieldsFunc(s, blank), " ")
}

// none is printed for an empty value.
const none = "<none>"

// OrNone returns s, or <none> for an empty string.
func OrNone(s string) string { return orWord(s, none) }

func orWord(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
