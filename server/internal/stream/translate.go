package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/moby/spdystream"
)

const (
	channelV4 = "v4.channel.k8s.io"
	channelV5 = "v5.channel.k8s.io"
)

// The channels of a remote command. The first byte of each message is the channel. A message on
// chClose closes the channel that its second byte names (v5 only).
const (
	chStdin  = 0
	chStdout = 1
	chStderr = 2
	chError  = 3
	chResize = 4
	chClose  = 255
)

// maxStatus limits the bytes of a command's status from the runtime.
const maxStatus = 64 << 10

// command translates a remote command between a WebSocket and SPDY.
type command struct {
	ws   *websocket.Conn
	spdy *spdystream.Connection

	stdin, stdout, stderr, status, resize *spdystream.Stream // nil if not requested

	mu sync.Mutex // guards writes to ws
}

// translate connects the channels of a WebSocket with SPDY streams.
func translate(ctx context.Context, w http.ResponseWriter, r *http.Request, q Request) error {
	b, err := askSPDY(ctx, w, q.Target, channelV4)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	if got := b.head.Header.Get(protocolHeader); got != channelV4 {
		err := fmt.Errorf("the runtime's streaming server chose protocol %q; want %s", got, channelV4)
		http.Error(w, err.Error(), http.StatusBadGateway)
		return err
	}
	conn, err := spdystream.NewConnection(b, false)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return err
	}
	c := &command{spdy: conn}
	var serving sync.WaitGroup
	serving.Go(func() { conn.Serve(refuse) })
	defer serving.Wait()
	defer func() {
		_ = b.Close() // ends Serve once earlier data is not needed any more
		c.reset()
	}()
	if err := c.create(q.Streams); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return err
	}
	if c.ws, err = upgrader(channelV5).Upgrade(w, r, nil); err != nil {
		return err
	}
	defer func() { _ = c.ws.Close() }()
	stop := context.AfterFunc(ctx, func() {
		_ = c.ws.Close()
		_ = b.Close()
	})
	defer stop()
	return c.run(func() { _ = b.Close() })
}

// refuse refuses streams that the runtime opens. The protocol has none.
func refuse(s *spdystream.Stream) { _ = s.Refuse() }

// create opens the streams that the runtime expects.
func (c *command) create(s Streams) error {
	for _, want := range []struct {
		kind  string
		there bool
		dst   **spdystream.Stream
	}{
		{"error", true, &c.status},
		{"stdin", s.Stdin, &c.stdin},
		{"stdout", s.Stdout, &c.stdout},
		{"stderr", s.Stderr && !s.TTY, &c.stderr},
		{"resize", s.TTY, &c.resize},
	} {
		if !want.there {
			continue
		}
		// No Stream.Wait: it would not return if the connection ends before the reply. If the
		// runtime refuses a stream, the stream ends without a status.
		stream, err := c.spdy.CreateStream(http.Header{"Streamtype": {want.kind}}, nil, false)
		if err != nil {
			return fmt.Errorf("stream %s of the runtime: %w", want.kind, err)
		}
		*want.dst = stream
	}
	_ = c.status.Close() // nothing is sent on it
	return nil
}

// reset ends all streams, and drops unread data.
func (c *command) reset() {
	for _, s := range []*spdystream.Stream{c.stdin, c.stdout, c.stderr, c.status, c.resize} {
		if s != nil {
			_ = s.Reset() // the connection has ended
		}
	}
}

// run copies until the command has ended or the client has disconnected. hangUp closes the
// runtime's connection.
func (c *command) run(hangUp func()) error {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		c.fromClient()
		hangUp() // otherwise out.Wait would wait for output forever
	}()
	var out sync.WaitGroup
	out.Go(func() { c.toClient(chStdout, c.stdout) })
	out.Go(func() { c.toClient(chStderr, c.stderr) })
	status, err := io.ReadAll(io.LimitReader(c.status, maxStatus))
	out.Wait() // the status comes last, since clients close the connection after it
	code := websocket.CloseNormalClosure
	if len(status) > 0 {
		err = errors.Join(err, c.send(chError, status))
	} else {
		code = websocket.CloseInternalServerErr
		err = errors.Join(err, errors.New("the runtime ended the stream without a status"))
	}
	sendClose(c.ws, code)
	// The client sends a close message when it has read everything. Closing earlier would lose
	// data.
	_ = c.ws.SetReadDeadline(time.Now().Add(dialTimeout))
	<-gone
	return err
}

// toClient copies a stream to a channel. If the client has disconnected, it continues to read,
// since otherwise it would block the other streams.
func (c *command) toClient(channel byte, s *spdystream.Stream) {
	if s == nil {
		return
	}
	buf := make([]byte, 32<<10)
	for gone := false; ; {
		n, err := s.Read(buf)
		if n > 0 && !gone {
			gone = c.send(channel, buf[:n]) != nil
		}
		if err != nil {
			return
		}
	}
}

func (c *command) send(channel byte, b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, err := c.ws.NextWriter(websocket.BinaryMessage)
	if err != nil {
		return err
	}
	if _, err := w.Write([]byte{channel}); err != nil {
		return err
	}
	if _, err := w.Write(b); err != nil {
		return err
	}
	return w.Close()
}

// fromClient copies channels to streams until the client disconnects.
func (c *command) fromClient() {
	for {
		_, msg, err := c.ws.NextReader()
		if err != nil {
			return
		}
		var channel [1]byte
		if _, err := io.ReadFull(msg, channel[:]); err != nil {
			continue // an empty message has no channel
		}
		switch channel[0] {
		case chStdin:
			copyTo(c.stdin, msg)
		case chResize:
			copyTo(c.resize, msg)
		case chClose:
			var which [1]byte
			if _, err := io.ReadFull(msg, which[:]); err == nil && which[0] == chStdin && c.stdin != nil {
				_ = c.stdin.Close()
			}
		}
	}
}

// copyTo copies a message to a stream. If that fails, the command has closed its input and
// continues without it.
func copyTo(s *spdystream.Stream, msg io.Reader) {
	if s != nil {
		_, _ = io.Copy(s, msg)
	}
}
