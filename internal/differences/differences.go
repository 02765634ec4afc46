// Package differences has the list of differences between a node of this module and
// the kubelet: differences.md, which "agent help differences" prints.
package differences

import _ "embed"

// Text is the list, in Markdown. The first line of an item is the difference, the
// second is the reason.
//
//go:embed differences.md
var Text string
