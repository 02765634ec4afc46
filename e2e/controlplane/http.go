package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// Do sends a request to the API server as an administrator. body is encoded as JSON, unless it is
// nil. The answer is decoded into out, unless that is nil. If out is a *[]byte, it gets the
// answer unchanged. Any status other than success is an error.
func (c *ControlPlane) Do(ctx context.Context, method, path string, body, out any) error {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: %s: %s", method, path, res.Status, got)
	}
	switch out := out.(type) {
	case nil:
		return nil
	case *[]byte:
		*out = got
		return nil
	default:
		return json.Unmarshal(got, out)
	}
}
