//go:build linux

package image

import (
	"archive/tar"
	"fmt"
	"strings"
)

// Limits of names in a layer. The first two are the kernel's (PATH_MAX without the final NUL,
// NAME_MAX); the third is our own.
const (
	maxPath  = 4095
	maxName  = 255
	maxDepth = 512
)

// The prefixes of the names of whiteouts (OCI image layer specification, "Whiteouts").
const (
	whiteoutPrefix = ".wh."
	metaPrefix     = ".wh..wh."
	opaqueName     = ".wh..wh..opq"
)

// action is what an entry of an archive asks for.
type action int

const (
	put      action = iota // create the entry
	whiteout               // hide the name in the layers below
	opaque                 // hide everything that the layers below have in the directory
	ignore                 // do nothing
)

// classify returns the action of an entry and its path, which is clean, relative and without
// "..". The path of the layer's root is ".". It uses only the header, not the files on the disk.
// An error means that the archive is hostile or broken.
func classify(h *tar.Header) (act action, path string, err error) {
	// Comments, for example of git archive (POSIX pax format); the entry has no path.
	if h.Typeflag == tar.TypeXGlobalHeader {
		return ignore, "", nil
	}
	path, err = cleanName(h.Name)
	if err != nil {
		return ignore, "", err
	}
	dir, base := split(path)
	// Before the check for ordinary whiteouts, since these names begin with their prefix, too.
	if strings.HasPrefix(path, metaPrefix) || strings.Contains(path, "/"+metaPrefix) {
		if base == opaqueName && !hasWhiteout(dir) {
			return opaque, dir, nil
		}
		return ignore, "", nil // bookkeeping of aufs
	}
	// A whiteout is a file and has no children; entries below a directory of such a name could
	// act as removals elsewhere.
	if hasWhiteout(dir) {
		return ignore, "", fmt.Errorf("entry %s is below the name of a whiteout", shown(h.Name))
	}
	if hidden, ok := strings.CutPrefix(base, whiteoutPrefix); ok {
		// ".wh..." would remove the parent directory, and ".wh." alone nothing.
		if hidden == "" || hidden == "." || hidden == ".." {
			return ignore, "", fmt.Errorf("whiteout %s names no entry", shown(h.Name))
		}
		return whiteout, join(dir, hidden), nil
	}
	// Overlayfs needs a directory as the root of a layer.
	if path == "." && h.Typeflag != tar.TypeDir {
		return ignore, "", fmt.Errorf("entry %s of type %q is at the root; want a directory there", shown(h.Name), h.Typeflag)
	}
	// As a 32-bit number the last one is -1, which chown(2) treats as "do not change".
	if h.Uid < 0 || h.Gid < 0 || int64(h.Uid) >= 1<<32-1 || int64(h.Gid) >= 1<<32-1 {
		return ignore, "", fmt.Errorf("owner %d:%d; want 0 to %d", h.Uid, h.Gid, int64(1<<32-2))
	}
	return put, path, nil
}

// hasWhiteout reports whether an element of a path has a whiteout's prefix.
func hasWhiteout(dir string) bool {
	return strings.HasPrefix(dir, whiteoutPrefix) || strings.Contains(dir, "/"+whiteoutPrefix)
}

// cleanName returns the path for the name of an entry or the target of a hard link. All names are
// relative to the layer's root: ko and Nix write entries with a leading "/", and kaniko targets
// of hard links. ".." removes the element before it, by name and not through links, as in other
// runtimes. A name that leads out of the root is an error: no builder writes one.
func cleanName(name string) (string, error) {
	switch {
	case name == "":
		return "", fmt.Errorf("entry without a name")
	case len(name) > maxPath:
		return "", fmt.Errorf("name %s has %d bytes; want at most %d", shown(name), len(name), maxPath)
	case strings.IndexByte(name, 0) >= 0:
		return "", fmt.Errorf("name %s has a NUL", shown(name))
	}
	// "./usr//bin/" and "usr/bin" are the same path, so that checksums and implied directories
	// have one key.
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

// shown returns a name from an archive for use in an error. It is quoted, so that control
// characters do not reach a terminal or forge a log line, and cut at 100 bytes.
func shown(name string) string {
	const most = 100
	if len(name) > most {
		name = name[:most] + "..."
	}
	return fmt.Sprintf("%q", name)
}

// split returns the directory of a clean path and its last element. The directory is "." if the
// path is in the root.
func split(path string) (dir, base string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return ".", path
}

// join returns the path of the entry base in the directory dir; it is the inverse of
// split.
func join(dir, base string) string {
	if dir == "." {
		return base
	}
	return dir + "/" + base
}

// keepsXattr reports whether an extended attribute of an archive is set on the file. Attributes
// with an effect on overlayfs or a security module are not.
func keepsXattr(name string) bool {
	// By default not: attributes of security modules and file systems are the node's decision,
	// not the image's.
	switch {
	// Overlayfs in a user namespace uses these (mount option userxattr).
	case strings.HasPrefix(name, "user.overlay."):
		return false
	// File capabilities (capabilities(7)) belong to an image: ping has one.
	case strings.HasPrefix(name, "user."), name == "security.capability":
		return true
	case name == "system.posix_acl_access", name == "system.posix_acl_default":
		return true
	}
	return false
}
