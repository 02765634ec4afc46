package wire

import (
	"encoding/binary"
	"errors"
)

// Type says what a message asks for or reports.
type Type uint16

// Requests of a client.
const (
	Hello  Type = iota + 1 // first on each connection; answered by Kept messages and a Reply
	Start                  // a container
	Adopt                  // a container that runs
	Exec                   // a process
	Kill                   // a process
	Attach                 // to a container's streams
	Detach                 // end an Attach
	Resize                 // a container's terminal
	Reopen                 // a container's log
	Keep                   // a record
	Forget                 // a container that has ended
	Quit                   // the monitor
)

// Messages of a monitor.
const (
	Reply       Type = iota + 64 // to a request, with its sequence number
	Kept                         // one container, before the Reply to Hello
	Exited                       // a container ended
	LogLost                      // a container's log
	StdinShut                    // a container's standard input ended
	ProcessDone                  // an Exec's process ended
	AttachDone                   // an Attach ended
)

// Codes of errors in replies.
const (
	OK uint64 = iota
	Failed
	Unsupported
	Malformed
	Unknown
	Exists
	NotRunning
	Running
	NotStarted // StartError
	Busy
	Cut
	TimedOut
)

// Bits of Message.Flags.
const (
	FlagStdin uint64 = 1 << iota
	FlagStdinOnce
	FlagTerminal
	FlagKillWithClient
	FlagStarted
	FlagExited
	FlagOOM
	FlagStdinShut
	FlagNotStarted
)

// Bits of Message.Files: which descriptors came with a message, in this order.
const (
	FileStdin  uint64 = 1 << iota
	FileStdout        // or the pidfd of a container's first process, in Adopt, Kept and Reply
	FileStderr        // or a terminal's master
	FilePidfd  = FileStdout
	FileMaster = FileStderr
)

// Message is a message of any type. Fields that the type does not use are zero.
type Message struct {
	Type    Type
	Version uint16
	Seq     uint32

	Sandbox, ID string

	Dir, PIDFile, ExecutorLog, ConsoleSocket, FIFODir, ExitFile, Log, OOMFile string

	Step, Text, Reason string // of an error, of an exit

	Create, Start []string // Exec's command is Create
	Record        []byte

	Error                 uint64
	Flags                 uint64
	Files                 uint64
	Min, Max              uint64 // versions of a Hello; Max of its Reply
	Timeout, StartTimeout uint64 // nanoseconds
	PID                   uint64
	At, EndAt             uint64 // nanoseconds since 1970
	StartTime             uint64
	Code                  uint64 // an int32
	Lost                  uint64 // bytes
	Handle                uint64 // of a process or an Attach
	Width, Height         uint64
}

const (
	texts    = 1
	numbers  = 64
	lists    = 128
	blobs    = 160
	tagCount = 192
)

func (m *Message) text(tag uint16) *string {
	fields := [...]*string{
		&m.Sandbox, &m.ID, &m.Dir, &m.PIDFile, &m.ExecutorLog, &m.ConsoleSocket, &m.FIFODir, &m.ExitFile, &m.Log, &m.OOMFile,
		&m.Step, &m.Text, &m.Reason,
	}
	if i := int(tag) - texts; i >= 0 && i < len(fields) {
		return fields[i]
	}
	return nil
}

func (m *Message) number(tag uint16) *uint64 {
	fields := [...]*uint64{
		&m.Error, &m.Flags, &m.Files, &m.Min, &m.Max, &m.Timeout, &m.StartTimeout, &m.PID, &m.At, &m.EndAt, &m.StartTime, &m.Code,
		&m.Lost, &m.Handle, &m.Width, &m.Height,
	}
	if i := int(tag) - numbers; i >= 0 && i < len(fields) {
		return fields[i]
	}
	return nil
}

func (m *Message) list(tag uint16) *[]string {
	fields := [...]*[]string{&m.Create, &m.Start}
	if i := int(tag) - lists; i >= 0 && i < len(fields) {
		return fields[i]
	}
	return nil
}

func (m *Message) blob(tag uint16) *[]byte {
	if tag == blobs {
		return &m.Record
	}
	return nil
}

const (
	headerSize = 8
	fieldSize  = 6
)

// Errors of Decode and Append.
var (
	ErrMalformed = errors.New("malformed message")
	ErrTooLong   = errors.New("message is longer than 64 KiB")
)

// Append appends the message to b. If the message has more than MaxMessage bytes, or a list more
// than MaxList elements, it returns b unchanged and ErrTooLong.
func (m *Message) Append(b []byte) ([]byte, error) {
	start := len(b)
	b = binary.LittleEndian.AppendUint16(b, uint16(m.Type))
	b = binary.LittleEndian.AppendUint16(b, Version)
	b = binary.LittleEndian.AppendUint32(b, m.Seq)
	for tag := uint16(0); tag < tagCount; tag++ {
		switch {
		case tag >= blobs:
			if p := m.blob(tag); p != nil && len(*p) > 0 {
				b = append(field(b, tag, len(*p)), *p...)
			}
		case tag >= lists:
			p := m.list(tag)
			if p == nil {
				continue
			}
			if len(*p) > MaxList {
				return b[:start], ErrTooLong
			}
			for _, s := range *p {
				b = append(field(b, tag, len(s)), s...)
			}
		case tag >= numbers:
			if p := m.number(tag); p != nil && *p != 0 {
				b = binary.LittleEndian.AppendUint64(field(b, tag, 8), *p)
			}
		default:
			if p := m.text(tag); p != nil && *p != "" {
				b = append(field(b, tag, len(*p)), *p...)
			}
		}
	}
	if len(b)-start > MaxMessage {
		return b[:start], ErrTooLong
	}
	return b, nil
}

func field(b []byte, tag uint16, size int) []byte {
	b = binary.LittleEndian.AppendUint16(b, tag)
	return binary.LittleEndian.AppendUint32(b, uint32(size))
}

// Decode decodes a message. The result shares no memory with b. Each field of a list is one element;
// if another field occurs twice, the last value counts. The error is ErrMalformed.
func Decode(b []byte) (Message, error) {
	var m Message
	if len(b) < headerSize || len(b) > MaxMessage {
		return m, ErrMalformed
	}
	m.Type = Type(binary.LittleEndian.Uint16(b))
	m.Version = binary.LittleEndian.Uint16(b[2:])
	m.Seq = binary.LittleEndian.Uint32(b[4:])
	for b = b[headerSize:]; len(b) > 0; {
		if len(b) < fieldSize {
			return Message{}, ErrMalformed
		}
		tag, size := binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint32(b[2:])
		b = b[fieldSize:]
		if uint64(size) > uint64(len(b)) {
			return Message{}, ErrMalformed
		}
		value := b[:size]
		b = b[size:]
		switch {
		case tag >= blobs:
			if p := m.blob(tag); p != nil {
				*p = append([]byte(nil), value...)
			}
		case tag >= lists:
			if p := m.list(tag); p != nil {
				if len(*p) == MaxList {
					return Message{}, ErrMalformed
				}
				*p = append(*p, string(value))
			}
		case tag >= numbers:
			if p := m.number(tag); p != nil {
				if len(value) != 8 {
					return Message{}, ErrMalformed
				}
				*p = binary.LittleEndian.Uint64(value)
			}
		default:
			if p := m.text(tag); p != nil {
				*p = string(value)
			}
		}
	}
	return m, nil
}
