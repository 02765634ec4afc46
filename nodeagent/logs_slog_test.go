package nodeagent_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/nodeagent"
)

func TestFromSlog(t *testing.T) {
	var b bytes.Buffer
	noTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	log := nodeagent.FromSlog(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: noTime})))
	for _, tc := range []struct {
		name string
		do   func()
		want string
	}{
		{"fields", func() {
			log.Info("pod started", zap.String("pod", "a b"), zap.Int("n", 3), zap.Duration("took", time.Second), zap.Strings("s", []string{"x"}), zap.Skip())
		}, `level=INFO msg="pod started" pod="a b" n=3 took=1s s=[x]`},
		{"an error and a name", func() { log.Named("images").Error("failed to pull", zap.Error(errors.New("no route"))) },
			`level=ERROR msg="failed to pull" logger=images error="no route"`},
		{"with", func() { log.With(zap.String("pod", "web")).Warn("late") }, `level=WARN msg=late pod=web`},
		{"a namespace", func() { log.Info("m", zap.Int("a", 1), zap.Namespace("in"), zap.Int("b", 2)) }, `level=INFO msg=m a=1 in.b=2`},
		{"with a namespace", func() { log.With(zap.Int("a", 1), zap.Namespace("in"), zap.Int("b", 2)).Info("m", zap.Int("c", 3)) }, `level=INFO msg=m a=1 in.b=2 in.c=3`},
		{"too low", func() { log.Debug("m") }, ``},
		{"an error that panics", func() { log.Info("m", zap.Error((*os.PathError)(nil))) }, `level=INFO msg=m error=<nil>`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b.Reset()
			tc.do()
			if got := strings.TrimSuffix(b.String(), "\n"); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
	if nodeagent.FromSlog(nil) == nil {
		t.Error("nil for nil")
	}
}

// The line that logged is the one that slog shows.
func TestFromSlogSource(t *testing.T) {
	var b bytes.Buffer
	nodeagent.FromSlog(slog.New(slog.NewJSONHandler(&b, &slog.HandlerOptions{AddSource: true}))).Info("m")
	if !strings.Contains(b.String(), "slog_test.go") {
		t.Error(b.String())
	}
}

func ExampleFromSlog() {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	_ = nodeagent.FromSlog(log) // for LogOptions.Log of any package here
}
