package gc

import (
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
)

// Images, their uses and their names. The same image goes by an ID, with or without its
// algorithm, and by tags and digests in short and in full form; here they are brought into
// one form, by which uses, pins and holds are compared.

// Image is an image as the runtime lists it.
type Image struct {
	// ID is the name that the runtime itself has for it. Images without one are not
	// collected.
	ID string
	// Handler is the runtime handler that it was pulled for, with runtimes
	// that keep images by it (KEP-4216); "" is the default one.
	Handler string
	// Tags and Digests are its names, repository:tag and repository@digest.
	Tags, Digests []string
	// Size is in bytes, as the runtime says so: mostly that of the layers as
	// they were pulled, shared ones included.
	Size int64
	// Pinned is the runtime's own wish that it stays.
	Pinned bool
	// Labels are those of the image, where the Store knows them.
	Labels map[string]string
}

// ImageUse says that a container, running or dead, was made of an image or mounts
// it.
type ImageUse struct {
	// Image is the image's ID or, of runtimes that do not tell it, a name.
	Image string
	// Handler is that of Image; "" if it is not known, and then matches any.
	Handler string
	By      string // for people: namespace/pod/container
}

// ImageDisk is the file system that images are on. All are bytes.
type ImageDisk struct {
	Capacity, Available int64
	Images              int64 // taken by images, as the runtime counts; 0 if unknown
}

// key is what is remembered of an image by: its ID, with the handler behind a comma, as in
// the kubelet. One ID may be listed for several handlers, whose images are used and removed
// separately.
func (i *Image) key() string {
	if i.Handler == "" {
		return i.ID
	}
	return i.ID + "," + i.Handler
}

// Name is the one to show: a tag, a digest, or else the ID.
func (i *Image) Name() string {
	switch {
	case len(i.Tags) > 0:
		return i.Tags[0]
	case len(i.Digests) > 0:
		return i.Digests[0]
	}
	return i.ID
}

// namesBy are all that the image may be asked for by. full completes a name.
func (i *Image) namesBy(full func(string) string) []string {
	out := append(make([]string, 0, 2+len(i.Tags)+len(i.Digests)), i.ID)
	if _, hex, ok := strings.Cut(i.ID, ":"); ok {
		out = append(out, hex)
	} else { // CRI-O lists it without, and containers may have it with
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

// fullName is an image's name with registry, repository and tag or digest: of
// nginx it is docker.io/library/nginx:latest. A digest makes the tag beside it
// void. What is no such name, as an ID, stays as it is.
func fullName(name string) string {
	if strings.HasPrefix(name, "sha256:") {
		return name
	}
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return name
	}
	// The digest alone says which content is meant.
	if d, ok := named.(reference.Digested); ok {
		if c, err := reference.WithDigest(reference.TrimNamed(named), d.Digest()); err == nil {
			return c.String()
		}
	}
	return reference.TagNameOnly(named).String()
}

// ImageFact is all that is known of an image when it is decided what to do with it.
type ImageFact struct {
	Image Image
	// FirstSeen is when it was listed first, LastUsed when it was seen in
	// use last; zero if never.
	FirstSeen, LastUsed time.Time
	// Used names some of those who use it.
	Used []string
	// Reference, Label and Desired say what pins it, if anything does: the
	// Pins or PinLabels it matches, or the name that a stored pod has of it.
	Reference, Label, Desired string
	// Held reports that a pod which is being started holds it, or did so since
	// the facts were read.
	Held bool
}
