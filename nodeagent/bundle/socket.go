package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/bundle"
)

// Paths on the agent's socket.
const (
	statusPath   = "/v1/bundle"
	applyPath    = "/v1/bundle/apply"
	rollbackPath = "/v1/bundle/rollback"
)

// Applied is the answer to a bundle that was accepted.
type Applied struct {
	Digest string `json:"digest"`
}

// handlers returns the handlers of a Manager, by their patterns.
func handlers(m *bundle.Manager) map[string]http.Handler {
	slot := make(chan struct{}, 1) // a bundle is some megabytes
	return map[string]http.Handler{
		"GET " + statusPath: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, m.Status(), nil) }),
		"POST " + rollbackPath: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			err := m.Rollback(r.Context())
			answer(w, m.Status(), err)
		}),
		"POST " + applyPath: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case slot <- struct{}{}:
				defer func() { <-slot }()
			default:
				http.Error(w, "another bundle is being applied; try again later", http.StatusTooManyRequests)
				return
			}
			digest, err := apply(m, w, r)
			answer(w, Applied{digest}, err)
		}),
	}
}

// apply applies the bundle of the body, or of the reference in the query.
func apply(m *bundle.Manager, w http.ResponseWriter, r *http.Request) (digest string, err error) {
	if ref := r.URL.Query().Get("ref"); ref != "" {
		return m.Fetch(r.Context(), ref)
	}
	archive, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bundle.MaxArchive))
	if err != nil {
		return "", err
	}
	b, err := bundle.Read(bytes.NewReader(archive))
	if err != nil {
		return "", err
	}
	return b.Digest, m.Apply(r.Context(), b)
}

// answer writes a document, or an error as one line.
func answer(w http.ResponseWriter, doc any, err error) {
	switch {
	case errors.Is(err, bundle.ErrOnTrial), errors.Is(err, bundle.ErrNoBefore):
		http.Error(w, err.Error(), http.StatusConflict)
	case errors.Is(err, bundle.ErrInvalid):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(doc)
	}
}

// Status returns the status of the agent's bundles. If the agent has none, the error wraps
// local.ErrNotFound.
func Status(ctx context.Context, agent *local.Client) (s bundle.Status, err error) {
	err = agent.Get(ctx, statusPath, &s)
	return s, err
}

// Apply sends a bundle to the agent: see bundle.Manager.Apply.
func Apply(ctx context.Context, agent *local.Client, b *bundle.Bundle) error {
	archive, err := b.Archive()
	if err != nil {
		return err
	}
	return agent.Post(ctx, applyPath, bytes.NewReader(archive), &Applied{})
}

// ApplyRef makes the agent fetch the bundle of a reference, and returns its digest: see
// bundle.Manager.Fetch.
func ApplyRef(ctx context.Context, agent *local.Client, ref string) (digest string, err error) {
	var a Applied
	err = agent.Post(ctx, applyPath+"?"+url.Values{"ref": {ref}}.Encode(), nil, &a)
	return a.Digest, err
}

// Rollback brings back the bundle before, and returns the status after it: see
// bundle.Manager.Rollback.
func Rollback(ctx context.Context, agent *local.Client) (s bundle.Status, err error) {
	err = agent.Post(ctx, rollbackPath, nil, &s)
	return s, err
}
