// Package podtext prints pods and events for people: the tables, descriptions and
// changes that the agent's commands show.
//
// Names, messages and values come from manifests, images and containers. All of
// them pass [OneLine], so that none can break a line or speak to the terminal.
package podtext

import (
	"strings"
	"unicode"
)

// OneLine makes text fit for a line of a table: line breaks and what speaks to the
// terminal (a container chooses the text of its messages) become a blank.
func OneLine(s string) string {
	blank := func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }
	return strings.Join(strings.FieldsFunc(s, blank), " ")
}

// none is printed for an empty value.
const none = "<none>"

// OrNone is s, or <none> for an empty string.
func OrNone(s string) string { return orWord(s, none) }

func orWord(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
