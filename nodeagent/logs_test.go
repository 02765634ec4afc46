package nodeagent_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/nodewright/nodewright/nodeagent"
)

// written is what a log of this configuration has of some lines, in each stream.
func written(t *testing.T, cfg nodeagent.LogOptions, say func(*zap.Logger, *nodeagent.LogLevel)) (out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	cfg.Out, cfg.Errors = &o, &e
	log, level, err := nodeagent.NewLogger(cfg)
	if err != nil {
		t.Fatal(err)
	}
	say(log, level)
	_ = log.Sync()
	return o.String(), e.String()
}

func TestText(t *testing.T) {
	out, got := written(t, nodeagent.LogOptions{}, func(log *zap.Logger, _ *nodeagent.LogLevel) {
		log.Named("agent").With(zap.String("pod", "ns/a b")).Info("started pod", zap.Int("n", 3), zap.Duration("after", time.Second), zap.Strings("ips", []string{"a", "b"}), zap.Bool("ok", true))
		log.Warn("a \"word\"\nand more", zap.Error(errors.New("line\nE1122 forged")))
		log.Error("failed", zap.NamedError("cause", errors.New("why")), zap.String("a key", "v"))
		log.Debug("nobody hears this")
	})
	const head = `\d{4} \d{2}:\d{2}:\d{2}\.\d{6} +\d+ logs_test\.go:\d+\] `
	want := []string{
		"I" + head + regexp.QuoteMeta(`"started pod" logger="agent" pod="ns/a b" n=3 after="1s" ips=["a","b"] ok=true`),
		"W" + head + regexp.QuoteMeta(`"a \"word\"\nand more" err="line\nE1122 forged"`),
		"E" + head + regexp.QuoteMeta(`"failed" cause="why" "a key"="v"`),
	}
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	if len(lines) != len(want) || out != "" {
		t.Fatalf("%d lines:\n%s\nand %q", len(lines), got, out)
	}
	for i, w := range want {
		if !regexp.MustCompile("^" + w + "$").MatchString(lines[i]) {
			t.Errorf("%s\nwant %s", lines[i], w)
		}
	}
}

func TestTerminal(t *testing.T) {
	var b bytes.Buffer
	log := zap.New(zapcore.NewCore(nodeagent.TerminalEncoder(), zapcore.AddSync(&b), zap.InfoLevel))
	id := strings.Repeat("0123456789abcdef", 4)
	log.Named("agent").With(zap.String("pod", "shop/web")).Info("container started", zap.Int("restarts", 3), zap.Duration("retry", 18987939412), zap.Duration("took", 3420410*time.Nanosecond), zap.Duration("none", 0))
	log.Warn("failed to attach", zap.String("id", id), zap.String("words", "a b"), zap.String("empty", ""), zap.Error(errors.New("line\nmore")))
	log.Error("a\x1b[31mred", zap.Strings("ips", []string{"a", "b"}), zap.String("path", "a=b"))
	const at = `\d{2}:\d{2}:\d{2} `
	want := []string{
		at + regexp.QuoteMeta(`info  container started logger=agent pod=shop/web restarts=3 retry=19s took=3.42ms none=0s`),
		at + regexp.QuoteMeta(`warn  failed to attach id=0123456789ab words="a b" empty="" err="line\nmore"`),
		at + regexp.QuoteMeta(`error "a\x1b[31mred" ips=["a","b"] path="a=b"`),
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines:\n%s", len(lines), b.String())
	}
	for i, w := range want {
		if !regexp.MustCompile("^" + w + "$").MatchString(lines[i]) {
			t.Errorf("%s\nwant %s", lines[i], w)
		}
	}
}

func TestJSON(t *testing.T) {
	_, got := written(t, nodeagent.LogOptions{Format: nodeagent.FormatJSON, Verbosity: 4}, func(log *zap.Logger, _ *nodeagent.LogLevel) {
		log.Named("agent").Info("started pod", zap.Duration("after", time.Second))
		log.Debug("a step")
		log.Error("failed", zap.Error(errors.New("why")))
		log.Error("failed", zap.Error(panics{}))
	})
	var lines []map[string]any
	for line := range strings.Lines(got) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err, line)
		}
		if ts, ok := m["ts"].(float64); !ok || time.Since(time.UnixMilli(int64(ts))).Abs() > time.Hour || !strings.HasPrefix(m["caller"].(string), "nodeagent/logs_test.go:") {
			t.Errorf("line %s", line)
		}
		if _, has := m["level"]; has {
			t.Errorf("line %s", line)
		}
		lines = append(lines, m)
	}
	if len(lines) != 4 || lines[0]["msg"] != "started pod" || lines[0]["v"] != 0.0 || lines[0]["logger"] != "agent" || lines[0]["after"] != "1s" ||
		lines[1]["v"] != 4.0 || lines[2]["err"] != "why" || lines[2]["v"] != nil {
		t.Errorf("%s", got)
	}
}

type panics struct{}

func (panics) Error() string { panic("no") }

// Files have a verbosity of their own, whatever that of the log is.
func TestModules(t *testing.T) {
	for name, tc := range map[string]struct {
		v       int
		modules []nodeagent.LogModule
		want    bool
	}{
		"none":         {0, nil, false},
		"by name":      {0, []nodeagent.LogModule{{"logs_test", 4}}, true},
		"by glob":      {0, []nodeagent.LogModule{{"log*", 9}}, true},
		"by path":      {0, []nodeagent.LogModule{{"github.com/*/*/nodeagent/logs_test", 4}, {"logs_test", 4}}, true},
		"another file": {0, []nodeagent.LogModule{{"other", 9}}, false},
		"too little":   {0, []nodeagent.LogModule{{"logs_test", 3}}, false},
		"the first":    {0, []nodeagent.LogModule{{"logs*", 0}, {"logs_test", 9}}, false},
		"less":         {9, []nodeagent.LogModule{{"logs_test", 0}}, false},
		"the others":   {9, []nodeagent.LogModule{{"other", 0}}, true},
	} {
		_, got := written(t, nodeagent.LogOptions{Verbosity: tc.v, Modules: tc.modules}, func(log *zap.Logger, _ *nodeagent.LogLevel) {
			log.With(zap.Int("n", 1)).Debug("a step")
			log.Info("always")
		})
		if strings.Contains(got, "a step") != tc.want || !strings.Contains(got, "always") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// Errors go to a stream of their own, and all else is kept for a while.
func TestSplit(t *testing.T) {
	out, errs := written(t, nodeagent.LogOptions{Split: true}, func(log *zap.Logger, _ *nodeagent.LogLevel) {
		log.Info("fine")
		log.Error("bad")
	})
	if !strings.Contains(out, "fine") || strings.Contains(out, "bad") || !strings.Contains(errs, "bad") || strings.Contains(errs, "fine") {
		t.Errorf("%s and %s", out, errs)
	}
	var o bytes.Buffer
	log, _, err := nodeagent.NewLogger(nodeagent.LogOptions{Split: true, BufferBytes: 1 << 16, FlushEvery: time.Hour, Out: &o, Errors: &o})
	if err != nil {
		t.Fatal(err)
	}
	log.Info("kept")
	if o.Len() != 0 {
		t.Errorf("written at once: %s", o.String())
	}
	if err := log.Sync(); err != nil || !strings.Contains(o.String(), "kept") {
		t.Errorf("%v, %s", err, o.String())
	}
}

func TestLevel(t *testing.T) {
	_, got := written(t, nodeagent.LogOptions{}, func(log *zap.Logger, l *nodeagent.LogLevel) {
		log.Debug("before")
		if err := l.SetLogLevel(4); err != nil || l.LogLevel() != 4 {
			t.Error(err, l.LogLevel())
		}
		log.Debug("now")
		_ = l.SetLogLevel(3)
		log.Debug("after")
	})
	if strings.Contains(got, "before") || !strings.Contains(got, "now") || strings.Contains(got, "after") {
		t.Error(got)
	}
}

func TestConfig(t *testing.T) {
	_, _, err := nodeagent.NewLogger(nodeagent.LogOptions{Format: "xml", BufferBytes: -1, Modules: []nodeagent.LogModule{{"[", 1}, {"", 0}, {"a", -1}}})
	for _, want := range []string{`LogOptions.Format is "xml"`, "LogOptions.BufferBytes is -1", "LogOptions.Modules[0]", "LogOptions.Modules[1]", "LogOptions.Modules[2]"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}
