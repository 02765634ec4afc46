//go:build linux

package image

import (
	"archive/tar"
	"fmt"
	"strings"
)

// Limits of names in a layer. The first two are the kernel's (PATH_MAX less the
// final NUL, NAME_MAX); the third is ours.
const (
	maxPath  = 4095
	maxName  = 255
	maxDepth = 512
)

// The prefixes of names that say what a layer removes (OCI image layer
// specification, "Whiteouts").
const (
	whiteoutPrefix = ".wh."
	metaPrefix     = ".wh..wh."
	opaqueName     = ".wh..wh..opq"
)

// deed is what an entry of an archive asks for.
type deed int

const (
	put      deed = iota // make it
	whiteout             // hide the name of the layers below
	opaque               // hide all that the layers below have in the directory
	ignore               // nothing
)

// classify returns what an entry asks for and at which path, which is clean,
// relative and has no "..". The path of the layer's root is ".". It looks at names
// alone, never at the disk. An error means that the archive is hostile or broken.
func classify(h *tar.Header) (d deed, path string, err error) {
	// Comments of git archive and the like (POSIX pax format); it has no path of its
	// own.
	if h.Typeflag == tar.TypeXGlobalHeader {
		return ignore, "", nil
	}
	path, err = cleanName(h.Name)
	if err != nil {
		return ignore, "", err
	}
	dir, base := split(path)
	// Before the check of ordinary whiteouts, since these names begin with their
	// prefix, too.
	if strings.HasPrefix(path, metaPrefix) || strings.Contains(path, "/"+metaPrefix) {
		if base == opaqueName && !hasWhiteout(dir) {
			return opaque, dir, nil
		}
		return ignore, "", nil // bookkeeping of aufs
	}
	// A whiteout is a file and has no entries; below a directory of such a name they
	// would come to be removals at another place.
	if hasWhiteout(dir) {
		return ignore, "", fmt.Errorf("entry %s is below a whiteout", shown(h.Name))
	}
	if hidden, ok := strings.CutPrefix(base, whiteoutPrefix); ok {
		// ".wh..." would remove the parent, and ".wh." alone nothing.
		if hidden == "" || hidden == "." || hidden == ".." {
			return ignore, "", fmt.Errorf("whiteout %s names no entry", shown(h.Name))
		}
		return whiteout, join(dir, hidden), nil
	}
	// Overlayfs needs a directory as the root of a layer.
	if path == "." && h.Typeflag != tar.TypeDir {
		return ignore, "", fmt.Errorf("entry %s of type %q is at the root; want a directory there", shown(h.Name), h.Typeflag)
	}
	return put, path, nil
}

// hasWhiteout reports whether an element of a path has a whiteout's prefix.
func hasWhiteout(dir string) bool {
	return strings.HasPrefix(dir, whiteoutPrefix) || strings.Contains(dir, "/"+whiteoutPrefix)
}

// cleanName makes a path of the name of an entry or of the target of a hard link. All
// names are relative to the layer's root: ko and Nix write entries that begin with "/",
// and kaniko such targets of hard links. ".." takes the element before it away, by name
// and not by links, as in other runtimes. One that leads out of the root is an error: no
// builder writes it.
func cleanName(name string) (string, error) {
	switch {
	case name == "":
		return "", fmt.Errorf("entry without a name")
	case len(name) > maxPath:
		return "", fmt.Errorf("name %s has %d bytes; want at most %d", shown(name), len(name), maxPath)
	case strings.IndexByte(name, 0) >= 0:
		return "", fmt.Errorf("name %s has a NUL", shown(name))
	}
	// "./usr//bin/" and "usr/bin" are one path, so that sums and implied directories
	// have one key each.
	var kept []string
	for e := range strings.SplitSeq(name, "/") {
		switch {
		case e == "" || e == ".":
		case e == "..":
			if len(kept) == 0 {
				return "", fmt.Errorf("name %s leads out of the layer", shown(name))
			}
			kept = kept[:len(kept)-1]
		case len(e) > maxName:
			return "", fmt.Errorf("name %s has an element of %d bytes; want at most %d", shown(name), len(e), maxName)
		default:
			kept = append(kept, e)
		}
	}
	// Each level costs a look-up in every layer below.
	if len(kept) > maxDepth {
		return "", fmt.Errorf("name %s has %d elements; want at most %d", shown(name), len(kept), maxDepth)
	}
	if len(kept) == 0 {
		return ".", nil
	}
	return strings.Join(kept, "/"), nil
}

// shown is a name of somebody else's, for an error. It is quoted, so that control
// characters do not reach a terminal or forge a log line, and cut at 100 bytes.
func shown(name string) string {
	const most = 100
	if len(name) > most {
		name = name[:most] + "..."
	}
	return fmt.Sprintf("%q", name)
}

// split returns the directory of a clean path, "." for the root, and the last element.
func split(path string) (dir, base string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return ".", path
}

// join is the reverse of split.
func join(dir, base string) string {
	if dir == "." {
		return base
	}
	return dir + "/" + base
}

// keepsXattr reports whether an extended attribute of an archive is given to the
// file: those that overlayfs or a security module would act on are not.
func keepsXattr(name string) bool {
	// The default is no: attributes of security modules and of file systems come from
	// the node's policy, not from an image.
	switch {
	// Overlayfs in a user namespace obeys these (mount option userxattr).
	case strings.HasPrefix(name, "user.overlay."):
		return false
	// File capabilities (capabilities(7)) are part of what an image means: ping has
	// one.
	case strings.HasPrefix(name, "user."), name == "security.capability":
		return true
	case name == "system.posix_acl_access", name == "system.posix_acl_default":
		return true
	}
	return false
}
