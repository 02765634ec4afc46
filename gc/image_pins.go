package gc

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
)

// pin is one of ImageConfig.Pins. It is compared with full names only; see fullName.
type pin struct {
	// text is the pin as it was written, for reports.
	text string
	// full is the whole name; repo a repository, of which all is pinned; tree
	// what the repository begins with. One of them is set.
	full, repo, tree string
}

// parsePin reads a name, a repository, or a beginning and /*. What it cannot read is an
// error: a pin with a mistake would protect nothing.
func parsePin(s string) (pin, error) {
	bare, isTree := strings.CutSuffix(s, "/*")
	// An ID, which is a name of every image as well.
	if strings.HasPrefix(s, "sha256:") {
		return pin{text: s, full: s}, nil
	}
	if isTree && !strings.Contains(bare, "/") && (strings.ContainsAny(bare, ".:") || bare == "localhost") {
		return pin{text: s, tree: bare + "/"}, nil // a registry
	}
	named, err := reference.ParseNormalizedNamed(bare)
	if err != nil {
		return pin{}, fmt.Errorf("want an image's name, a repository, or the beginning of one and /*: %w", err)
	}
	switch {
	case isTree && !reference.IsNameOnly(named):
		return pin{}, fmt.Errorf("want no tag and no digest before /*")
	case isTree:
		// A name of one part is completed as that of an official image, which
		// the beginning of a name is not.
		tree := named.Name()
		if !strings.Contains(bare, "/") {
			tree = reference.Domain(named) + "/" + bare
		}
		return pin{text: s, tree: tree + "/"}, nil
	case reference.IsNameOnly(named):
		return pin{text: s, repo: named.Name()}, nil
	default:
		return pin{text: s, full: fullName(s)}, nil
	}
}

// matches reports whether a full name is pinned.
func (p pin) matches(name string) bool {
	if p.full != "" {
		return name == p.full
	}
	if p.tree != "" {
		return strings.HasPrefix(name, p.tree)
	}
	// A tag or a digest has to follow: a repository is not the beginning of another one's
	// name.
	rest, ok := strings.CutPrefix(name, p.repo)
	return ok && (strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, "@"))
}

// labelPin is one of ImageConfig.PinLabels: key or key=value.
type labelPin struct {
	text, key, value string
	// any is true for a key alone: every value matches, the empty one too.
	any bool
}

// parseLabelPin splits at the first "=": values may have more of them.
func parseLabelPin(s string) (labelPin, error) {
	key, value, ok := strings.Cut(s, "=")
	if key == "" {
		return labelPin{}, fmt.Errorf("want key or key=value")
	}
	return labelPin{text: s, key: key, value: value, any: !ok}, nil
}

// matches reports whether labels have the pin's key, and its value if it has one. Without
// labels, as from a Store that does not read them, no pin matches.
func (p labelPin) matches(labels map[string]string) bool {
	v, ok := labels[p.key]
	return ok && (p.any || v == p.value)
}
