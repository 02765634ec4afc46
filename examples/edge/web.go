package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode"
)

// maxAnswer is the maximum size of a response's body in bytes. maxText is the maximum length
// of a server's message in characters. Both are far above the usual size.
const (
	maxAnswer = 1 << 20
	maxText   = 200
)

// newClient returns an HTTP client for servers that are not trusted. The client does not
// follow redirects, and limits the size of headers. Each request needs its own deadline.
func newClient() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxResponseHeaderBytes = 64 << 10
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// checkURL returns an error unless value is an http or https URL. flag is the name of the flag.
func checkURL(flag, value string) error {
	if u, err := url.Parse(value); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("--%s is %q; an http or https URL is required", flag, value)
	}
	return nil
}

// answer is an HTTP response.
type answer struct {
	status int
	etag   string
	body   []byte
}

// exchange sends a request and reads the complete response. It fails if the body has more than
// maxAnswer bytes.
func exchange(c *http.Client, req *http.Request) (answer, error) {
	resp, err := c.Do(req)
	if err != nil {
		var cause *url.Error // remove the method and the URL, which the caller knows
		if errors.As(err, &cause) {
			err = cause.Err
		}
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("the answer is larger than %d bytes", maxAnswer)
	}
	return answer{resp.StatusCode, resp.Header.Get("ETag"), body}, err
}

// refusal returns an error with the status and the first line of the response.
func (a answer) refusal() error {
	return errors.New(strings.TrimSuffix(fmt.Sprintf("the server answered %d: %s", a.status, firstLine(a.body)), ": "))
}

// firstLine returns the first line of body without control characters, cut to maxText
// characters.
func firstLine(body []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(body[:min(len(body), 4*maxText)])), "\n")
	line = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, line)
	if r := []rune(line); len(r) > maxText {
		return string(r[:maxText])
	}
	return line
}
