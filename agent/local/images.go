package local

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// Imager is an [Agent] that can list the images on its node.
type Imager interface {
	// Images returns the images on the node, what garbage collection would do with each, and the
	// usage of their disk. It removes nothing.
	Images(ctx context.Context) (Images, error)
}

// Images is the answer to "what is on the images' disk, and why does it stay?".
type Images struct {
	At   time.Time `json:"at"`
	Disk ImageDisk `json:"disk"`
	// High and Low are percentages of the disk: above High, images are removed until Low is
	// reached.
	High int `json:"high"`
	Low  int `json:"low"`
	// Wanted is the number of bytes that garbage collection would free now.
	Wanted int64 `json:"wanted,omitempty"`
	// Summary says in one line how full the disk is and why images are kept. Problem is an error
	// because of which the answer is incomplete.
	Summary string `json:"summary"`
	Problem string `json:"problem,omitempty"`
	// Images are sorted: first those to be removed, in that order, then the others, largest first.
	Images []Image `json:"images"`
}

// ImageDisk is the file system of the images. All are bytes; zero is unknown.
type ImageDisk struct {
	Capacity  int64 `json:"capacity,omitempty"`
	Available int64 `json:"available,omitempty"`
	Images    int64 `json:"images,omitempty"`
}

// Image says how large an image on the node is, and whether garbage collection would remove it.
type Image struct {
	Name string `json:"name"` // the ID, if it has none
	ID   string `json:"id"`
	Size int64  `json:"size"` // bytes, as the runtime reports
	// Verdict says whether the image would be removed, or why it is kept. Why has details, such as
	// the pod that uses the image, or what pins it.
	Verdict string `json:"verdict"`
	Why     string `json:"why,omitempty"`
	// Goes reports that the image would be removed now.
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

// Images returns the images on the agent's node.
func (c *Client) Images(ctx context.Context) (*Images, error) {
	var i Images
	return &i, c.get(ctx, "/v1/images", &i)
}
