package nodelog

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Config configures the logs. The zero value of every field means the default named
// beside it.
type Config struct {
	Dir        string        // /var/log
	Query      bool          // enables queries
	Journalctl string        // the program; journalctl
	Timeout    time.Duration // limit of one journalctl call; the default is 30 s
}

// Handler serves files by path and answers queries at "/".
func Handler(c Config) http.Handler {
	if c.Dir == "" {
		c.Dir = "/var/log"
	}
	if c.Journalctl == "" {
		c.Journalctl = "journalctl"
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	files := http.HandlerFunc(dir(c.Dir).serveFile)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if !c.Query {
			files.ServeHTTP(w, r)
			return
		}
		q, err := parse(r.URL.Query())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if q == nil {
			files.ServeHTTP(w, r)
			return
		}
		if r.URL.Path != "" && r.URL.Path != "/" {
			http.Error(w, "path not allowed in query mode", http.StatusNotAcceptable)
			return
		}
		err = q.validate(func(name string) error {
			f, err := dir(c.Dir).regular(r.Context(), name)
			if err != nil {
				return err
			}
			return f.Close()
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotAcceptable)
			return
		}
		c.answer(w, r, q)
	})
}

// answer writes the requested logs. An error is written as a line of the answer, since
// the status may have been sent already.
func (c *Config) answer(w http.ResponseWriter, r *http.Request, q *query) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	var out io.Writer = w
	if r.Header.Get("Accept-Encoding") == "gzip" {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer func() { _ = z.Close() }()
		out = z
	}
	for _, f := range q.files {
		if err := c.copyFile(r.Context(), out, f); err != nil {
			fmt.Fprintf(out, "\n%v\n", err)
		}
	}
	if len(q.services) == 0 {
		return
	}
	units := c.units(r.Context())
	for _, s := range q.services {
		if slices.Contains(units, s+".service") {
			c.journal(r.Context(), out, q.command(s))
		} else {
			c.guess(r.Context(), out, s, q.hasOptions())
		}
	}
}

// units returns the systemd units that have entries in the journal. It returns none if journalctl
// fails, for example on a node without a journal.
func (c *Config) units(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	var b capped
	cmd := exec.CommandContext(ctx, c.Journalctl, "--field", "_SYSTEMD_UNIT")
	cmd.Stdout, cmd.WaitDelay = &b, time.Second
	if err := cmd.Run(); err != nil {
		return nil
	}
	return strings.Fields(b.String())
}

// maxUnits limits the bytes of unit names. It is enough for some ten thousand; each pod causes
// some.
const maxUnits = 4 << 20

// capped keeps the first maxUnits bytes and drops the rest.
type capped struct{ strings.Builder }

// Write implements io.Writer.
func (c *capped) Write(p []byte) (int, error) {
	_, _ = c.Builder.Write(p[:min(len(p), maxUnits-c.Len())])
	return len(p), nil
}

func (c *Config) journal(ctx context.Context, out io.Writer, args []string) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Journalctl, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = errors.Join(err, ctx.Err())
		}
		fmt.Fprintf(out, "\njournalctl: %v\n", err)
	}
}

// guess looks for a service's log file in the usual places.
func (c *Config) guess(ctx context.Context, out io.Writer, service string, options bool) {
	for _, name := range []string{service, service + ".log", service + "/" + service + ".log"} {
		f, err := dir(c.Dir).regular(ctx, name)
		if err != nil {
			continue
		}
		_ = f.Close()
		if options {
			fmt.Fprintf(out, "options present: %s is a file, whose lines cannot be chosen\n", name)
			return
		}
		if err := c.copyFile(ctx, out, name); err != nil {
			fmt.Fprintf(out, "\n%v\n", err)
		}
		return
	}
	fmt.Fprintf(out, "log not found for %s\n", service)
}

func (c *Config) copyFile(ctx context.Context, out io.Writer, name string) error {
	f, err := dir(c.Dir).regular(ctx, name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = io.Copy(out, f)
	return err
}
