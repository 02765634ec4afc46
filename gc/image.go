package gc

import (
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
)

// Images, their uses and their names. An image may be named by its ID, with or without the
// algorithm, and by short or full tags and digests. Names are converted to one form, in which
// uses, pins and holds are compared.

// Image is an image in the runtime's list.
type Image struct {
	// ID is the runtime's ID of the image. Images without an ID are not collected.
	ID string
	// Handler is the runtime handler for which the image was pulled, on runtimes with separate
	// images per handler (KEP-4216). It is "" for the default handler.
	Handler string
	// Tags and Digests are the names of the image: repository:tag and repository@digest.
	Tags, Digests []string
	// Size is the size in bytes that the runtime reports. It is usually the size of the compressed
	// layers, including layers that other images share.
	Size int64
	// Pinned means that the runtime wants to keep the image.
	Pinned bool
}

// ImageUse is the use of an image by a container, running or dead: as its root file system or as
// a mount.
type ImageUse struct {
	// Image is the image's ID, or a name if the runtime does not report the ID.
	Image string
	// Handler is the image's runtime handler. It is "" if the handler is not known; "" matches
	// any handler.
	Handler string
	By      string // the user for messages: namespace/pod/container
}

// ImageDisk is the usage of the file system of images, in bytes.
type ImageDisk struct {
	Capacity, Available int64
	Images              int64 // used by images, by the runtime's count; 0 if unknown
}

// key returns the key of an image in the history: its ID, then a comma and the handler if there
// is one, as in the kubelet. Images of several handlers with one ID are used and removed
// separately.
func (i *Image) key() string {
	if i.Handler == "" {
		return i.ID
	}
	return i.ID + "," + i.Handler
}

// Name returns a name for display: a tag, a digest, or else the ID.
func (i *Image) Name() string {
	switch {
	case len(i.Tags) > 0:
		return i.Tags[0]
	case len(i.Digests) > 0:
		return i.Digests[0]
	}
	return i.ID
}

// namesBy returns all names by which pods may refer to the image. full adds the registry and the
// tag to a short name.
func (i *Image) namesBy(full func(string) string) []string {
	out := append(make([]string, 0, 2+len(i.Tags)+len(i.Digests)), i.ID)
	if _, hex, ok := strings.Cut(i.ID, ":"); ok {
		out = append(out, hex)
	} else { // CRI-O lists IDs without the algorithm; containers may have it
		out = append(out, "sha256:"+i.ID)
	}
	for _, list := range [][]string{i.Tags, i.Digests} {
		for _, n := range list {
			if n = full(n); !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	}
	return out
}

// fullName returns an image's name with registry, repository and tag or digest:
// docker.io/library/nginx:latest for nginx. If there is a digest, the tag is dropped. Other
// texts, such as an ID, are returned unchanged.
func fullName(name string) string {
	if strings.HasPrefix(name, "sha256:") {
		return name
	}
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return name
	}
	// The digest alone identifies the content.
	if d, ok := named.(reference.Digested); ok {
		if c, err := reference.WithDigest(reference.TrimNamed(named), d.Digest()); err == nil {
			return c.String()
		}
	}
	return reference.TagNameOnly(named).String()
}

// ImageFact has all facts about an image for the decision.
type ImageFact struct {
	Image Image
	// FirstSeen is the time of the first list with the image. LastUsed is the time of the last
	// observed use; zero if there was none.
	FirstSeen, LastUsed time.Time
	// Used names some of the image's users.
	Used []string
	// Reference is the entry of Pins that matches the image. Desired is the name by which a pod
	// refers to it.
	Reference, Desired string
	// Held means that a starting pod holds the image (see [ImageHold]), or has held the image
	// since the facts were read.
	Held bool
}
