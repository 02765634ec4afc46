package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Client sends requests to the agent at a unix socket. It may be used by several goroutines. The
// error of a call wraps ErrNoAgent if nothing listens on the socket, fs.ErrPermission if the user
// may not open the socket, and ErrNotFound if the agent answers 404. For any other error status, it
// has the text of the answer.
type Client struct {
	socket string
	http   http.Client
}

// NewClient returns a client of the agent that serves socket. It connects at the first request.
func NewClient(socket string) *Client {
	c := &Client{socket: socket}
	c.http.Transport = &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}
	return c
}

// Pods lists all pods of the agent.
func (c *Client) Pods(ctx context.Context) (*v1.PodList, error) {
	var l v1.PodList
	return &l, c.get(ctx, "/v1/pods", &l)
}

// Pod returns one pod. If there is none, the error wraps ErrNotFound.
func (c *Client) Pod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	var p v1.Pod
	return &p, c.get(ctx, podPath(namespace, name), &p)
}

// Events returns the stored events of a pod, oldest first.
func (c *Client) Events(ctx context.Context, namespace, name string) (*v1.EventList, error) {
	var l v1.EventList
	return &l, c.get(ctx, podPath(namespace, name)+"/events", &l)
}

// Why returns the explanation of a pod's state.
func (c *Client) Why(ctx context.Context, namespace, name string) (*Why, error) {
	var w Why
	return &w, c.get(ctx, podPath(namespace, name)+"/why", &w)
}

// Whys returns the explanations of all pods.
func (c *Client) Whys(ctx context.Context) ([]Why, error) {
	var all []Why
	err := c.get(ctx, "/v1/why", &all)
	return all, err
}

// AllEvents returns the stored events of all pods and of the node, oldest first, including those of
// pods that are gone.
func (c *Client) AllEvents(ctx context.Context) (*v1.EventList, error) {
	var l v1.EventList
	return &l, c.get(ctx, "/v1/events", &l)
}

// Problems returns the manifests that are not in effect.
func (c *Client) Problems(ctx context.Context) ([]Problem, error) {
	var p []Problem
	err := c.get(ctx, "/v1/problems", &p)
	return p, err
}

// Log opens a container's log. The caller closes it.
func (c *Client) Log(ctx context.Context, namespace, name string, o LogOptions) (io.ReadCloser, error) {
	q := url.Values{}
	if o.Container != "" {
		q.Set("container", o.Container)
	}
	for key, on := range map[string]bool{"previous": o.Previous, "follow": o.Follow, "timestamps": o.Timestamps} {
		if on {
			q.Set(key, "true")
		}
	}
	if o.Tail >= 0 {
		q.Set("tail", strconv.FormatInt(o.Tail, 10))
	}
	if !o.Since.IsZero() {
		q.Set("since", o.Since.Format(time.RFC3339Nano))
	}
	resp, err := c.do(ctx, http.MethodGet, podPath(namespace, name)+"/log?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Exec prepares a command and returns the URL where it is streamed.
func (c *Client) Exec(ctx context.Context, namespace, name string, r ExecRequest) (string, error) {
	var reply ExecReply
	err := c.post(ctx, podPath(namespace, name)+"/exec", r, &reply)
	return reply.URL, err
}

// Attach prepares the streams of a running container's first process.
func (c *Client) Attach(ctx context.Context, namespace, name string, r AttachRequest) (AttachReply, error) {
	var reply AttachReply
	err := c.post(ctx, podPath(namespace, name)+"/attach", r, &reply)
	return reply, err
}

// PortForward returns the URL where connections to ports of a running pod are forwarded.
func (c *Client) PortForward(ctx context.Context, namespace, name string) (string, error) {
	var reply ExecReply
	err := c.post(ctx, podPath(namespace, name)+"/portforward", struct{}{}, &reply)
	return reply.URL, err
}

// post sends a document and decodes the answer.
func (c *Client) post(ctx context.Context, path string, send, into any) error {
	body, err := json.Marshal(send)
	if err != nil {
		return err
	}
	return c.Post(ctx, path, bytes.NewReader(body), into)
}

// Get reads a document at a path of the socket, such as /api/v1/configmaps of an agent that serves
// the Kubernetes API. If the path does not exist, the error wraps ErrNotFound.
func (c *Client) Get(ctx context.Context, path string, into any) error { return c.get(ctx, path, into) }

// Post sends a body, which may be nil, to a path of the socket, and decodes the answer from JSON into
// into.
func (c *Client) Post(ctx context.Context, path string, body io.Reader, into any) error {
	resp, err := c.send(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	return json.NewDecoder(resp.Body).Decode(into)
}

func podPath(namespace, name string) string {
	return "/v1/pods/" + url.PathEscape(namespace) + "/" + url.PathEscape(name)
}

func (c *Client) get(ctx context.Context, path string, into any) error {
	resp, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	return json.NewDecoder(resp.Body).Decode(into)
}

func (c *Client) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	return c.send(ctx, method, path, bytes.NewReader(body))
}

// send sends a request; body may be nil.
func (c *Client) send(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, body)
	if err != nil {
		return nil, err
	}
	return c.answer(req)
}

// answer sends a request and returns the response. A response with an error status is returned as
// an error.
func (c *Client) answer(req *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		var op *net.OpError
		switch {
		case errors.Is(err, fs.ErrPermission):
			return nil, fmt.Errorf("only the user that runs the agent may use its socket %s: %w", c.socket, fs.ErrPermission)
		case errors.As(err, &op):
			return nil, fmt.Errorf("%w at %s: %w", ErrNoAgent, c.socket, op.Err)
		}
		return nil, err
	}
	if resp.StatusCode < 400 {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	msg := strings.TrimSpace(string(text))
	var status metav1.Status // of the Kubernetes API
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		msg = status.Message
	}
	if resp.StatusCode == http.StatusNotFound {
		return nil, &notFoundError{msg}
	}
	return nil, errors.New(msg)
}

type notFoundError struct{ text string }

func (e *notFoundError) Error() string        { return e.text }
func (e *notFoundError) Is(target error) bool { return target == ErrNotFound }
