package gc

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
)

// pin is one entry of ImageConfig.Pins. It matches full names; see fullName.
type pin struct {
	// text is the entry as configured, for reports.
	text string
	// full is a whole name, repo a repository, tree a prefix of repositories. One of them is
	// set.
	full, repo, tree string
}

// parsePin parses a name, a repository, or a prefix that ends in /*.
func parsePin(s string) (pin, error) {
	bare, isTree := strings.CutSuffix(s, "/*")
	// An ID is also one of the image's names.
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
		// A name of one element becomes docker.io/library/NAME, which is wrong for a prefix.
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
	// A tag or a digest must follow, so that team/app does not match team/app2.
	rest, ok := strings.CutPrefix(name, p.repo)
	return ok && (strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, "@"))
}
