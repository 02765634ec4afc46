// Package podtext formats pods and events for people: the tables, descriptions and
// changes in the output of the agent's commands.
//
// Names, messages and values come from manifests, images and containers. All of
// them pass [OneLine], so that none can break a line or send control characters to
// the terminal.
package podtext

import (
	"strings"
	"unicode"
)

// OneLine replaces line breaks and control characters of the terminal by a blank,
// for a line of a table. (A container chooses the text of its messages.)
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
