//go:build linux

package monitor

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/localcri/internal/wire"
)

func startMessage(c Container) wire.Message {
	m := wire.Message{
		Type: wire.Start, ID: c.ID, Create: c.Create, Start: c.Start, Dir: c.Dir, PIDFile: c.PIDFile, ExecutorLog: c.ExecutorLog,
		ConsoleSocket: c.ConsoleSocket, FIFODir: c.FIFODir, ExitFile: c.ExitFile, Log: c.Log, OOMFile: c.OOMFile, Record: c.Record,
		Timeout: nanoseconds(c.Timeout), StartTimeout: nanoseconds(c.Timeout),
	}
	m.Flags |= flag(c.Stdin, wire.FlagStdin) | flag(c.StdinOnce, wire.FlagStdinOnce) | flag(c.Terminal, wire.FlagTerminal)
	return m
}

func adoptMessage(k Kept) wire.Message {
	m := startMessage(k.Container)
	m.Type = wire.Adopt
	m.Flags |= flag(k.StdinShut, wire.FlagStdinShut)
	if s := k.Started; s != nil {
		m.Flags |= wire.FlagStarted
		m.PID, m.At, m.StartTime = uint64(s.PID), uint64(s.At.UnixNano()), s.StartTime
	}
	if e := k.Exit; e != nil {
		m.Flags |= wire.FlagExited | flag(e.OOM, wire.FlagOOM)
		m.Code, m.EndAt, m.Lost, m.Reason = uint64(uint32(e.Code)), uint64(e.At.UnixNano()), e.LostLogBytes, e.Reason
	}
	if e := k.StartError; e != nil {
		m.Flags |= wire.FlagNotStarted
		m.Step, m.Text = e.Step, e.Message
	}
	return m
}

func keptOf(m wire.Message) Kept {
	k := Kept{
		Container: Container{
			ID: m.ID, Create: m.Create, Start: m.Start, Dir: m.Dir, PIDFile: m.PIDFile, ExecutorLog: m.ExecutorLog, ConsoleSocket: m.ConsoleSocket,
			FIFODir: m.FIFODir, ExitFile: m.ExitFile, Log: m.Log, OOMFile: m.OOMFile, Record: m.Record, Timeout: time.Duration(m.Timeout),
			Stdin: m.Flags&wire.FlagStdin != 0, StdinOnce: m.Flags&wire.FlagStdinOnce != 0, Terminal: m.Flags&wire.FlagTerminal != 0,
		},
		StdinShut: m.Flags&wire.FlagStdinShut != 0,
	}
	if m.Flags&wire.FlagStarted != 0 {
		k.Started = startedOf(m)
	}
	if m.Flags&wire.FlagExited != 0 {
		k.Exit = exitOf(m)
	}
	if m.Flags&wire.FlagNotStarted != 0 {
		k.StartError = &StartError{Step: m.Step, Message: executorMessage(m.Text)}
	}
	return k
}

func startedOf(m wire.Message) *Started {
	return &Started{PID: int(m.PID), At: time.Unix(0, int64(m.At)), StartTime: m.StartTime}
}

func exitOf(m wire.Message) *Exit {
	e := &Exit{
		ID: m.ID, Code: int32(uint32(m.Code)), At: time.Unix(0, int64(m.EndAt)), OOM: m.Flags&wire.FlagOOM != 0,
		LostLogBytes: m.Lost, Reason: m.Reason,
	}
	if m.At != 0 {
		e.StartedAt = time.Unix(0, int64(m.At))
	}
	return e
}

func flag(set bool, bit uint64) uint64 {
	if set {
		return bit
	}
	return 0
}

func nanoseconds(d time.Duration) uint64 { return uint64(max(d, 0)) }

// ReadExit reads an exit record. The error is os.ErrNotExist if there is none.
func ReadExit(path string) (Exit, error) {
	b, err := safefile.ReadFile(path, wire.MaxExit)
	if err != nil {
		return Exit{}, err
	}
	m, err := wire.DecodeExit(b)
	if err != nil {
		return Exit{}, &os.PathError{Op: "read exit record", Path: path, Err: err}
	}
	return *exitOf(m), nil
}

// executorMessage returns the message in a line of an executor's log. The line is JSON or logrus
// text; otherwise the result is the complete line.
func executorMessage(line string) string {
	if strings.HasPrefix(line, "{") {
		var l struct{ Msg string }
		if json.Unmarshal([]byte(line), &l) == nil && l.Msg != "" {
			return l.Msg
		}
	}
	if _, rest, found := strings.Cut(line, " msg="); found && strings.HasPrefix(rest, `"`) {
		if quoted, err := strconv.QuotedPrefix(rest); err == nil {
			if msg, err := strconv.Unquote(quoted); err == nil {
				return msg
			}
		}
	}
	return line
}
