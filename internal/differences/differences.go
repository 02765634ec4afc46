// Package differences holds the list of what a node of this module does otherwise
// than the kubelet: differences.md, which "agent --help=differences" prints.
package differences

import _ "embed"

// Text is the list, in Markdown: an item has the difference in its first line and
// the reason in its second.
//
//go:embed differences.md
var Text string
