package controlplane

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// auditPolicy makes the API server record each request of a node when the request is complete.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- {level: Metadata, userGroups: ["system:nodes"]}
- {level: None}
`

// Call is a request of a node to the API server.
type Call struct {
	Verb, Resource string // with its subresource: pods/status
	Name           string
	Code           int
	At             time.Time // when it came
}

func (c *ControlPlane) auditLog() string { return filepath.Join(c.dir, "audit.log") }

// Calls returns the requests of nodes since a time. It returns only complete requests, and so not
// a watch that is still running.
func (c *ControlPlane) Calls(since time.Time) ([]Call, error) {
	f, err := os.Open(c.auditLog())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var out []Call
	for d := json.NewDecoder(f); ; {
		var e struct {
			Verb      string
			ObjectRef struct{ Resource, Subresource, Name string }

			ResponseStatus           struct{ Code int }
			RequestReceivedTimestamp time.Time
		}
		switch err := d.Decode(&e); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // the last line may be half written
			return out, nil
		case err != nil:
			return nil, err
		}
		if e.RequestReceivedTimestamp.Before(since) {
			continue
		}
		call := Call{Verb: e.Verb, Resource: e.ObjectRef.Resource, Name: e.ObjectRef.Name, Code: e.ResponseStatus.Code, At: e.RequestReceivedTimestamp}
		if e.ObjectRef.Subresource != "" {
			call.Resource += "/" + e.ObjectRef.Subresource
		}
		out = append(out, call)
	}
}
