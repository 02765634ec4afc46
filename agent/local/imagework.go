package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// ImageKeeper is an [Agent] that can pull, load and remove images. If something does not exist, the
// error is ErrNotFound; if the runtime does not support the call, it is errors.ErrUnsupported.
type ImageKeeper interface {
	// PullImage pulls an image with the node's own credentials, and returns its ID.
	PullImage(ctx context.Context, image string) (id string, err error)
	// LoadImages installs the images of an archive, in the format of docker save or OCI, and
	// returns their IDs. name is for an image without one.
	LoadImages(ctx context.Context, archive io.Reader, name string) (ids []string, err error)
	// RemoveImage removes an image with all its names. An image that a pod uses is refused, unless
	// force is set.
	RemoveImage(ctx context.Context, image string, force bool) error
}

// LoadedImages is the answer to a pull or a load.
type LoadedImages struct {
	IDs []string `json:"ids"`
}

// maxImageWork limits the concurrent pulls, loads and removals for clients; more are refused.
const maxImageWork = 8

// longestImageName limits a reference, in bytes: a repository of 255, a tag of 128 and a digest fit
// (OCI distribution specification).
const longestImageName = 1 << 10

// imageWork returns a handler that calls do with the agent as an ImageKeeper, if the
// agent is one and a slot is free.
func (h *handler) imageWork(do func(k ImageKeeper, r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		k, ok := h.agent.(ImageKeeper)
		if !ok {
			say(w, http.StatusNotImplemented, errors.New("this agent does not pull, load or remove images"))
			return
		}
		select {
		case h.imageSlots <- struct{}{}:
			defer func() { <-h.imageSlots }()
		default:
			say(w, http.StatusTooManyRequests, fmt.Errorf("%d pulls, loads and removals of images run already; try again later", maxImageWork))
			return
		}
		if err := checkImageWork(r); err != nil {
			say(w, http.StatusBadRequest, err)
			return
		}
		answer, err := do(k, r)
		extend(http.NewResponseController(w)) // the work may have taken longer than the time limit of readers
		if err != nil {
			fail(w, err)
			return
		}
		reply(w, answer)
	}
}

// checkImageWork checks a request's parameters.
func checkImageWork(r *http.Request) error {
	q := r.URL.Query()
	name := q.Get("image")
	if len(name) > longestImageName {
		return fmt.Errorf("image has %d bytes; want at most %d", len(name), longestImageName)
	}
	if name == "" && !strings.HasSuffix(r.URL.Path, "/load") {
		return errors.New(`image=""; want the name of an image`)
	}
	if _, err := strconv.ParseBool(q.Get("force")); q.Has("force") && err != nil {
		return fmt.Errorf("force=%q: want true or false", q.Get("force"))
	}
	return nil
}

func pullImage(k ImageKeeper, r *http.Request) (any, error) {
	id, err := k.PullImage(r.Context(), r.URL.Query().Get("image"))
	return LoadedImages{IDs: []string{id}}, err
}

func loadImages(k ImageKeeper, r *http.Request) (any, error) {
	ids, err := k.LoadImages(r.Context(), r.Body, r.URL.Query().Get("image"))
	return LoadedImages{IDs: ids}, err
}

func removeImage(k ImageKeeper, r *http.Request) (any, error) {
	q := r.URL.Query()
	force, _ := strconv.ParseBool(q.Get("force"))
	return struct{}{}, k.RemoveImage(r.Context(), q.Get("image"), force)
}

// PullImage pulls an image, and returns its ID.
func (c *Client) PullImage(ctx context.Context, image string) (string, error) {
	l, err := c.imageWork(ctx, "/v1/images/pull", image, nil)
	if err != nil || len(l.IDs) != 1 {
		return "", err
	}
	return l.IDs[0], nil
}

// LoadImages sends an archive of images to the agent, and returns their IDs. name is for an image
// without one; "" means none.
func (c *Client) LoadImages(ctx context.Context, archive io.Reader, name string) ([]string, error) {
	l, err := c.imageWork(ctx, "/v1/images/load", name, archive)
	return l.IDs, err
}

func (c *Client) imageWork(ctx context.Context, path, image string, body io.Reader) (l LoadedImages, err error) {
	err = c.Post(ctx, path+"?"+url.Values{"image": {image}}.Encode(), body, &l)
	return l, err
}

// RemoveImage removes an image. Unless force is set, an image that a pod uses is kept, and the call
// returns an error.
func (c *Client) RemoveImage(ctx context.Context, image string, force bool) error {
	q := url.Values{"image": {image}, "force": {strconv.FormatBool(force)}}
	resp, err := c.send(ctx, http.MethodDelete, "/v1/images?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
