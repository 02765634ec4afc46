package podmgr

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/internal/callerror"
	"github.com/nodewright/nodewright/internal/manifestguard"
	"github.com/nodewright/nodewright/internal/manifestwords"
	"github.com/nodewright/nodewright/internal/quantity"
)

// Limits of one manifest, a file or a body. A person who may write manifests may run pods, but
// must not be able to stop the agent by a mistake.
const (
	// maxThings limits the number of documents in a manifest plus the number of items in its
	// lists. The largest nodes need some hundreds.
	maxThings = 5000
	// maxValues limits the values in a document, counted by [manifestguard.Values]. The YAML
	// parser needs up to a kilobyte for each.
	maxValues = 250_000
	// maxDepth limits the nesting of values. A Pod has 15 levels.
	maxDepth = 100
	// maxGrowth limits the size of a document after YAML aliases are expanded, as a multiple of
	// its text. Small documents may expand to smallDocument bytes.
	maxGrowth     = 10
	smallDocument = 1 << 20
	// maxObjects limits the decoded objects of a manifest, in bytes of memory. An empty
	// container has two bytes of text and 700 bytes of memory.
	maxObjects = 32 << 20
	// maxProblems limits the problems that are listed for a manifest; the rest are counted.
	maxProblems = 20
	// maxMistakes limits the mistakes that validation collects for one pod.
	maxMistakes = 100
	// maxText is the longest text in a problem, in bytes.
	maxText = 500
	// maxName is the longest name or UID, in bytes (RFC 1123's names of hosts).
	maxName = 253
)

// problem records why an object is not in effect. document is the number of the document in the
// file, from 1, or 0 for the whole file. pod is namespace/name, as far as it could be read.
func (d *decoded) problem(o origin, document int, pod, field, reason string) {
	d.problemAt(o, document, 0, pod, field, reason)
}

// problemAt records a problem like problem. line is the line in the document; if it is 0, the line
// of the field is used.
func (d *decoded) problemAt(o origin, document, line int, pod, field, reason string) {
	if d.broken == nil {
		d.broken = map[string]bool{}
	}
	// Also for problems that are only counted: keep needs the names of all broken
	// objects.
	d.broken[pod] = true
	if len(d.problems) == maxProblems {
		d.unnamed++
		return
	}
	if line == 0 && field != "" {
		if d.tree == nil {
			tree := manifestwords.Parse(d.doc)
			d.tree = &tree
		}
		line = d.tree.Line(field)
	}
	if line > 0 {
		line += d.before
	}
	d.problems = append(d.problems, Problem{
		File: o.shown(), Document: document, Line: line, Pod: inOneLine(pod), Field: inOneLine(field), Reason: inOneLine(reason),
	})
}

// inOneLine turns untrusted text into one short line of valid UTF-8.
func inOneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		// Line separators break lines of a log as newlines do,
		// and RuneError stands for bytes that are no UTF-8.
		case r == utf8.RuneError || unicode.IsControl(r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r):
			return ' '
		default:
			return r
		}
	}, callerror.Cut(s, maxText))
}

// tooCostly returns why a document must not be parsed, or "" if it may. It runs before the YAML
// parser, to limit the parser's memory.
func tooCostly(doc []byte) string {
	// In this order: the search for aliases parses the document itself.
	if manifestguard.Values(doc) > maxValues {
		return fmt.Sprintf("has too many values; want at most %d fields, items and lines", maxValues)
	}
	if err := manifestguard.Aliases(doc, max(maxGrowth*len(doc), smallDocument)); err != nil {
		return err.Error()
	}
	return ""
}

// affordable reports whether raw may be decoded into a value of the type of into without exceeding
// maxObjects. It adds the size of the decoded object to the size of the file.
func (d *decoded) affordable(raw []byte, into any, o origin, n int, name string) bool {
	size, costly := manifestguard.Inspect(raw, into)
	// A quantity with a huge exponent would occupy its parser for ever.
	for _, f := range costly {
		d.problem(o, n, name, f.Path, fmt.Sprintf("%q: %v", f.Value, quantity.ErrTooCostly))
	}
	if len(costly) > 0 {
		return false
	}
	if d.size += size; d.size > maxObjects {
		d.problem(o, n, name, "", fmt.Sprintf("with this object, the objects of the file take more than %d bytes in memory", maxObjects))
		// The object is left out, so that smaller objects after it may still fit.
		d.size -= size
		return false
	}
	return true
}

// named reports whether an object other than a pod has a name, and whether its name, namespace and
// UID are safe in paths. If not, it records a problem. For pods, validation finds a missing name.
func (d *decoded) named(m *metav1.ObjectMeta, o origin, n int, name string) bool {
	if m.Name == "" {
		d.problem(o, n, "", "metadata.name", "is missing")
		return false
	}
	return d.pathSafe(m, o, n, name)
}

// pathSafe reports whether the name, the namespace and the UID of an object can be parts of paths.
// If not, it records a problem. Names and namespaces become parts of paths, such as those of
// volumes and logs: a slash in one would lead to the files of another pod. Empty values are valid.
func (d *decoded) pathSafe(m *metav1.ObjectMeta, o origin, n int, name string) bool {
	good := true
	for _, f := range [...]struct{ field, value string }{
		{"metadata.name", m.Name}, {"metadata.namespace", m.Namespace}, {"metadata.uid", string(m.UID)},
	} {
		if reason := notInPath(f.value); reason != "" {
			d.problem(o, n, name, f.field, reason)
			good = false
		}
	}
	return good
}

// notInPath returns why a text must not be part of a path, or "" if it may be.
func notInPath(s string) string {
	switch {
	case len(s) > maxName:
		return fmt.Sprintf("has %d bytes; want at most %d", len(s), maxName)
	// No valid name or UID has "..", so it is refused
	// anywhere, not only as an element of a path.
	case s == ".", strings.Contains(s, ".."), strings.ContainsAny(s, "/\\"), strings.ContainsFunc(s, unicode.IsControl), !utf8.ValidString(s):
		return fmt.Sprintf("%q: want a text without '/', '\\', '..' and control characters", s)
	default:
		return ""
	}
}
