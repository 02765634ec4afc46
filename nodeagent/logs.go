package nodeagent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// DebugFrom is the verbosity from which a log has entries for debugging.
const DebugFrom = 4

// The log formats of Kubernetes' components.
const (
	FormatText = "text"
	FormatJSON = "json"
)

// LogModule sets another verbosity for some files.
type LogModule struct {
	// Pattern is the name of a file without directory and .go, or a glob (path.Match). A pattern
	// with a slash is compared with the whole path without .go.
	Pattern   string
	Verbosity int
}

// LogOptions configures a log. The zero value of each field means the default named
// beside it.
type LogOptions struct {
	Format    string // FormatText
	Verbosity int
	// Modules are checked in order; the first one that matches a file is used. If none matches,
	// Verbosity applies.
	Modules []LogModule

	// Split writes errors to Errors and all other entries to Out. If it is false, all entries go
	// to Errors.
	Split bool
	// BufferBytes is the size of the buffer of Out. If it is 0, Out has no buffer. It applies
	// only with Split. FlushEvery is how long an entry may stay in the buffer. The default is 5
	// s.
	BufferBytes int
	FlushEvery  time.Duration
	Out, Errors io.Writer // the defaults are os.Stdout and os.Stderr
}

// LogLevel is the verbosity of a running log. Its methods may be called from any
// goroutine.
type LogLevel struct {
	v     atomic.Int64
	level zap.AtomicLevel
}

// NewLogLevel returns a LogLevel, which is a zapcore.LevelEnabler.
func NewLogLevel(v int) *LogLevel {
	l := &LogLevel{level: zap.NewAtomicLevel()}
	_ = l.SetLogLevel(v) // accepts every verbosity
	return l
}

// Enabled implements zapcore.LevelEnabler.
func (l *LogLevel) Enabled(level zapcore.Level) bool { return l.level.Enabled(level) }

// LogLevel returns the verbosity; with SetLogLevel it is a server.LogLevel.
func (l *LogLevel) LogLevel() int { return int(l.v.Load()) }

// SetLogLevel changes the verbosity. It accepts any number, and always returns nil.
func (l *LogLevel) SetLogLevel(v int) error {
	l.v.Store(int64(v))
	level := zap.InfoLevel
	if v >= DebugFrom {
		level = zap.DebugLevel
	}
	l.level.SetLevel(level)
	return nil
}

// NewLogger returns a Logger, and its LogLevel, with which the verbosity can be
// changed. The Logger's Sync writes the buffer.
func NewLogger(cfg LogOptions) (*zap.Logger, *LogLevel, error) {
	var errs []error
	var enc zapcore.Encoder
	switch cfg.Format {
	case "", FormatText:
		enc = TextEncoder()
	case FormatJSON:
		enc = JSONEncoder()
	default:
		errs = append(errs, fmt.Errorf("LogOptions.Format is %q; want text or json", cfg.Format))
	}
	if cfg.BufferBytes < 0 || cfg.FlushEvery < 0 {
		errs = append(errs, fmt.Errorf("LogOptions.BufferBytes is %d and FlushEvery %v; want 0 or more", cfg.BufferBytes, cfg.FlushEvery))
	}
	for i, m := range cfg.Modules {
		if _, err := path.Match(m.Pattern, ""); err != nil || m.Pattern == "" || m.Verbosity < 0 {
			errs = append(errs, fmt.Errorf("LogOptions.Modules[%d] has Pattern %q and Verbosity %d; want a glob for file names, and 0 or more", i, m.Pattern, m.Verbosity))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, fmt.Errorf("logs: %w", err)
	}
	if cfg.Out == nil {
		cfg.Out = os.Stdout
	}
	if cfg.Errors == nil {
		cfg.Errors = os.Stderr
	}
	if cfg.FlushEvery == 0 {
		cfg.FlushEvery = 5 * time.Second // component-base's
	}
	l := NewLogLevel(cfg.Verbosity)
	core := &modules{Core: cfg.core(enc), level: l, list: cfg.Modules}
	return zap.New(core, zap.AddCaller(), zap.WithFatalHook(zapcore.WriteThenFatal)), l, nil
}

// core returns a core that writes all entries, whatever their level.
func (c *LogOptions) core(enc zapcore.Encoder) zapcore.Core {
	all := zap.LevelEnablerFunc(func(zapcore.Level) bool { return true })
	bad := zapcore.Lock(zapcore.AddSync(c.Errors))
	if !c.Split {
		return zapcore.NewCore(enc, bad, all)
	}
	out := zapcore.Lock(zapcore.AddSync(c.Out))
	if c.BufferBytes > 0 {
		out = &zapcore.BufferedWriteSyncer{WS: out, Size: c.BufferBytes, FlushInterval: c.FlushEvery}
	}
	return zapcore.NewTee(
		zapcore.NewCore(enc, out, zap.LevelEnablerFunc(func(l zapcore.Level) bool { return l < zap.ErrorLevel })),
		zapcore.NewCore(enc.Clone(), bad, zap.LevelEnablerFunc(func(l zapcore.Level) bool { return l >= zap.ErrorLevel })),
	)
}

// modules passes an entry by its level, or by the verbosity of the file that logged it.
type modules struct {
	zapcore.Core
	level *LogLevel
	list  []LogModule
}

// Enabled implements zapcore.Core. If there are Modules, it returns true, since Check decides for
// each entry by its file.
func (m *modules) Enabled(l zapcore.Level) bool {
	return m.level.level.Enabled(l) || len(m.list) > 0
}

// With implements zapcore.Core.
func (m *modules) With(fields []zapcore.Field) zapcore.Core {
	return &modules{m.Core.With(fields), m.level, m.list}
}

// Check implements zapcore.Core.
func (m *modules) Check(ent zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if m.Enabled(ent.Level) {
		return ce.AddCore(ent, m)
	}
	return ce
}

// Write implements zapcore.Core.
func (m *modules) Write(ent zapcore.Entry, fields []zapcore.Field) error {
	if !m.shows(&ent) {
		return nil
	}
	// A tee writes to all of its cores; each has to be checked.
	if ce := m.Core.Check(ent, nil); ce != nil {
		ce.Write(fields...)
	}
	return nil
}

func (m *modules) shows(ent *zapcore.Entry) bool {
	if ent.Level >= zap.InfoLevel {
		return true
	}
	for _, mod := range m.list {
		if ent.Caller.Defined && mod.matches(ent.Caller.File) {
			return mod.Verbosity >= DebugFrom
		}
	}
	return m.level.level.Enabled(ent.Level)
}

func (m *LogModule) matches(file string) bool {
	name := strings.TrimSuffix(filepath.ToSlash(file), ".go")
	if !strings.Contains(m.Pattern, "/") {
		name = path.Base(name)
	}
	ok, _ := path.Match(m.Pattern, name)
	return ok
}
