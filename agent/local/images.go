package local

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// Imager is an [Agent] that can tell of the images on its node.
type Imager interface {
	// Images says what images there are, what would become of each, and how
	// full their disk is. Nothing is removed.
	Images(ctx context.Context) (Images, error)
}

// Images is the answer to "what is on the images' disk, and why does it stay?".
type Images struct {
	At   time.Time `json:"at"`
	Disk ImageDisk `json:"disk"`
	// High and Low are percentages of the disk: from High on images are removed
	// until Low is reached.
	High int `json:"high"`
	Low  int `json:"low"`
	// Wanted is how many bytes would be freed now.
	Wanted int64 `json:"wanted,omitempty"`
	// Summary says in a line how full the disk is and why images stay; Problem
	// what kept the agent from finding out more.
	Summary string `json:"summary"`
	Problem string `json:"problem,omitempty"`
	// Images are in the order in which they would go, and then those that stay,
	// the largest first.
	Images []Image `json:"images"`
}

// ImageDisk is the file system of the images. All are bytes; zero is unknown.
type ImageDisk struct {
	Capacity  int64 `json:"capacity,omitempty"`
	Available int64 `json:"available,omitempty"`
	Images    int64 `json:"images,omitempty"`
}

// Image is an image on the node.
type Image struct {
	Name string `json:"name"` // the ID, if it has none
	ID   string `json:"id"`
	Size int64  `json:"size"` // bytes, as the runtime says so
	// Verdict is what is to become of it, or why it stays, and Why the
	// particulars: who uses it, or what pins it.
	Verdict string `json:"verdict"`
	Why     string `json:"why,omitempty"`
	// Goes reports that it would be removed now.
	Goes      bool      `json:"goes,omitempty"`
	FirstSeen time.Time `json:"firstSeen"`
	LastUsed  time.Time `json:"lastUsed,omitzero"` // zero if never
}

func (h *handler) images(w http.ResponseWriter, r *http.Request) {
	i, ok := h.agent.(Imager)
	if !ok {
		say(w, http.StatusNotImplemented, errors.New("this agent does not list images"))
		return
	}
	images, err := i.Images(r.Context())
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, images)
}

// Images asks what images there are on the agent's node.
func (c *Client) Images(ctx context.Context) (*Images, error) {
	var i Images
	return &i, c.get(ctx, "/v1/images", &i)
}
