package nodeagent

import (
	"context"
	"log/slog"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// FromSlog returns a Logger, for Config fields of this module, that writes to the handler of log.
// If log is nil, the Logger writes nothing. zap's Debug, Info, Warn and Error become the levels
// of slog with these names. The name of a Logger becomes the attribute "logger", and a stack
// trace the attribute "stack". Concurrent calls are safe if the handler allows them.
func FromSlog(log *slog.Logger) *zap.Logger {
	if log == nil {
		return zap.NewNop()
	}
	return zap.New(slogCore{log.Handler()}, zap.AddCaller())
}

// slogCore is a zapcore.Core over a slog.Handler.
type slogCore struct{ handler slog.Handler }

// slogLevel relies on the distance between levels: 1 in zap, 4 in slog, and Info is
// 0 in both.
func slogLevel(l zapcore.Level) slog.Level { return 4 * slog.Level(l) }

func (c slogCore) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), slogLevel(l))
}

func (c slogCore) With(fields []zapcore.Field) zapcore.Core {
	attrs, group, rest := attributes(fields)
	h := c.handler
	if len(attrs) > 0 {
		h = h.WithAttrs(attrs)
	}
	if group == "" {
		return slogCore{h}
	}
	return slogCore{h.WithGroup(group)}.With(rest)
}

func (c slogCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

func (c slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	var pc uintptr
	if e.Caller.Defined {
		pc = e.Caller.PC
	}
	r := slog.NewRecord(e.Time, slogLevel(e.Level), e.Message, pc)
	if e.LoggerName != "" {
		r.AddAttrs(slog.String("logger", e.LoggerName))
	}
	r.AddAttrs(grouped(fields)...)
	if e.Stack != "" {
		r.AddAttrs(slog.String("stack", e.Stack))
	}
	return c.handler.Handle(context.Background(), r)
}

// Sync does nothing: a slog.Handler has no such method.
func (slogCore) Sync() error { return nil }

// grouped returns fields as attributes, those after a zap.Namespace in a group.
func grouped(fields []zapcore.Field) []slog.Attr {
	attrs, group, rest := attributes(fields)
	if group != "" {
		attrs = append(attrs, slog.Attr{Key: group, Value: slog.GroupValue(grouped(rest)...)})
	}
	return attrs
}

// attributes converts fields up to a zap.Namespace, which begins a group with the
// rest.
func attributes(fields []zapcore.Field) (attrs []slog.Attr, group string, rest []zapcore.Field) {
	for i, f := range fields {
		if f.Type == zapcore.NamespaceType {
			return attrs, f.Key, fields[i+1:]
		}
		attrs = append(attrs, attribute(f)...)
	}
	return attrs, "", nil
}

// attribute converts one field, which may give several attributes, for example
// zap.Error with details.
func attribute(f zapcore.Field) []slog.Attr {
	if f.Type == zapcore.SkipType {
		return nil
	}
	enc := zapcore.NewMapObjectEncoder()
	f.AddTo(enc) // also of values that panic
	var attrs []slog.Attr
	for k, v := range enc.Fields {
		attrs = append(attrs, slog.Any(k, v))
	}
	slices.SortFunc(attrs, func(a, b slog.Attr) int { return len(a.Key) - len(b.Key) })
	return attrs
}
