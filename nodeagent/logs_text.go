package nodeagent

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
)

var buffers = buffer.NewPool()

// TextEncoder returns an encoder of klog's text format.
func TextEncoder() zapcore.Encoder {
	return &text{MapObjectEncoder: zapcore.NewMapObjectEncoder(), pid: os.Getpid()}
}

// TerminalEncoder returns an encoder for people at a terminal: time, level, message and key=value,
// with rounded durations and short IDs.
func TerminalEncoder() zapcore.Encoder {
	return &text{MapObjectEncoder: zapcore.NewMapObjectEncoder(), terminal: true}
}

// text writes each entry as one line. The embedded map has the fields that Logger.With added;
// EncodeEntry gets those of one entry.
type text struct {
	*zapcore.MapObjectEncoder
	pid      int
	terminal bool // as TerminalEncoder
}

// Clone implements zapcore.Encoder.
func (e *text) Clone() zapcore.Encoder {
	c := &text{MapObjectEncoder: zapcore.NewMapObjectEncoder(), pid: e.pid, terminal: e.terminal}
	maps.Copy(c.Fields, e.Fields)
	return c
}

// EncodeEntry implements zapcore.Encoder.
func (e *text) EncodeEntry(ent zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	b := buffers.Get()
	at := ent.Time
	if at.IsZero() {
		at = time.Now()
	}
	if e.terminal {
		fmt.Fprintf(b, "%s %-5s %s", at.Format(time.TimeOnly), ent.Level, printable(ent.Message))
	} else {
		file, line := "unknown", 1
		if ent.Caller.Defined {
			file, line = filepath.Base(ent.Caller.File), ent.Caller.Line
		}
		fmt.Fprintf(b, "%c%s %7d %s:%d] %s", severity(ent.Level), at.Format("0102 15:04:05.000000"), e.pid, file, line, strconv.Quote(ent.Message))
	}
	if ent.LoggerName != "" {
		e.pair(b, "logger", ent.LoggerName)
	}
	for _, key := range slices.Sorted(maps.Keys(e.Fields)) {
		e.pair(b, key, e.Fields[key])
	}
	for i := range fields {
		one := zapcore.NewMapObjectEncoder()
		fields[i].AddTo(one)
		for _, key := range slices.Sorted(maps.Keys(one.Fields)) {
			if fields[i].Type == zapcore.ErrorType && fields[i].Key == errorKey && key != errorKey {
				continue // zap's longer version of the same error
			}
			e.pair(b, key, one.Fields[key])
		}
	}
	b.AppendByte('\n')
	return b, nil
}

// errorKey is the key of zap.Error. Kubernetes' components write the key "err" instead.
const errorKey = "error"

// severity returns klog's letter for a level.
func severity(l zapcore.Level) byte {
	switch {
	case l >= zap.DPanicLevel:
		return 'F'
	case l >= zap.ErrorLevel:
		return 'E'
	case l >= zap.WarnLevel:
		return 'W'
	default:
		return 'I'
	}
}

// printable returns s, quoted if it has characters that a terminal might obey.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// shortID is the length of the IDs of containers and images that people read, as crictl prints them.
const shortID = 12

var longID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// brief returns a value for people: without quotes that it does not need.
func brief(value any) (text string, ok bool) {
	switch v := value.(type) {
	case time.Duration:
		digits := time.Microsecond
		for digits*1000 <= v.Abs() {
			digits *= 10
		}
		return v.Round(digits).String(), true
	case string:
		if longID.MatchString(v) {
			return v[:shortID], true
		}
		return v, v != "" && !strings.ContainsFunc(v, func(r rune) bool { return r == ' ' || r == '"' || r == '=' || !strconv.IsPrint(r) })
	}
	return "", false
}

func (e *text) pair(b *buffer.Buffer, key string, value any) {
	if key == errorKey {
		key = "err"
	}
	b.AppendByte(' ')
	b.AppendString(plainKey(key))
	b.AppendByte('=')
	if e.terminal {
		if short, ok := brief(value); ok {
			b.AppendString(short)
			return
		}
	}
	switch v := value.(type) {
	case string:
		b.AppendString(strconv.Quote(v))
	case []byte:
		b.AppendString(strconv.Quote(string(v)))
	case error:
		b.AppendString(strconv.Quote(v.Error()))
	case fmt.Stringer:
		b.AppendString(strconv.Quote(v.String()))
	case bool, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, uintptr, float32, float64, nil:
		fmt.Fprintf(b, "%v", v)
	default:
		j, err := json.Marshal(v)
		if err != nil {
			j = []byte(strconv.Quote(fmt.Sprintf("%+v", v)))
		}
		b.AppendString(string(j))
	}
}

// plainKey returns a key as it is, or quoted if it would be ambiguous.
func plainKey(key string) string {
	for _, r := range key {
		if r <= ' ' || r == '=' || r == '"' || r == '\x7f' {
			return strconv.Quote(key)
		}
	}
	return key
}
