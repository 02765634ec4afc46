package cri

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Limits of answers, in bytes on the socket. A larger answer is refused before it is read, and its
// call fails. The connection stays open.
const (
	// maxAnswer limits answers about one object.
	maxAnswer = 4 << 20
	// maxList limits lists. A container takes about 2 KiB of a list. The kubelet's
	// limit of 16 MiB is too small for a node with many thousand exited containers.
	maxList = 64 << 20
	// maxExec limits the output of a command, stdout and stderr together. Probes
	// use 10 KiB of it, and hooks less.
	maxExec = 256 << 10
	// execsReceived limits the outputs that are received at a time. Others wait in the
	// runtime, except for one streamWindow of each.
	execsReceived = 16
	// maxObjects limits the messages in an answer, nested ones and map entries
	// included: an empty message takes 2 bytes in an answer and 200 in memory.
	maxObjects = 1 << 20
	// maxDepth limits the nesting of messages. The messages of the CRI are nested less.
	maxDepth = 32
	// maxHeader limits the headers and trailers of an answer, which contain the error
	// message. maxError limits the part of the message that is kept, since it is
	// stored in many places.
	maxHeader = 256 << 10
	maxError  = 4 << 10
	// The windows limit the bytes that the runtime may send before they are read.
	streamWindow = 256 << 10
	connWindow   = 1 << 20
)

// forList is the gRPC option for calls whose answer may have maxList bytes.
var forList = grpc.MaxCallRecvMsgSize(maxList)

// shortened returns err with its message cut to maxError bytes, and the same code.
func shortened(err error) error {
	st, ok := status.FromError(err)
	if !ok || len(st.Message()) <= maxError {
		return err
	}
	return status.Error(st.Code(), cut(st.Message(), maxError)+" ...")
}

// boundedCodec is gRPC's protobuf codec. It counts the messages in an answer before it
// decodes them.
type boundedCodec struct{ encoding.CodecV2 }

// newCodec returns a codec that encodes as gRPC does and decodes within the limits.
func newCodec() boundedCodec { return boundedCodec{encoding.GetCodecV2("proto")} }

// Unmarshal decodes an answer of at most maxObjects messages.
func (c boundedCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		old, isOld := v.(protoadapt.MessageV1)
		if !isOld {
			return fmt.Errorf("answer is decoded into a %T; want a protobuf message", v)
		}
		m = protoadapt.MessageV2Of(old)
	}
	// The messages are counted in one piece of memory, before any of them is made.
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return decode(buf.ReadOnlyData(), m)
}

// decode decodes an answer within the limits.
func decode(b []byte, m proto.Message) error {
	left := maxObjects
	if err := count(b, m.ProtoReflect().Descriptor(), &left, maxDepth); err != nil {
		return err
	}
	return proto.Unmarshal(b, m)
}

// count subtracts the number of messages in b from left. It returns no error for malformed data,
// since the decoder refuses such data.
func count(b []byte, d protoreflect.MessageDescriptor, left *int, depth int) error {
	if depth == 0 {
		return fmt.Errorf("answer is nested deeper than %d messages", maxDepth)
	}
	fields := d.Fields()
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return protowire.ParseError(n)
		}
		f := fields.ByNumber(num)
		// Strings and numbers are bounded by the bytes of the answer.
		if f == nil || f.Message() == nil || typ != protowire.BytesType {
			b = b[n:]
			continue
		}
		if *left--; *left < 0 {
			return fmt.Errorf("answer has too many objects; want at most %d", maxObjects)
		}
		inner, _ := protowire.ConsumeBytes(b)
		if err := count(inner, f.Message(), left, depth-1); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// OutputError means that the output of a command was larger than Limit. Whether the
// command succeeded is not known.
type OutputError struct{ Limit int }

// OutputLimit returns the limit in bytes.
func (e *OutputError) OutputLimit() int { return e.Limit }

func (e *OutputError) Error() string {
	return fmt.Sprintf("OutputTooLarge: the command wrote more than %d bytes", e.Limit)
}

// execSync makes the call in two steps: it waits for the end of the command, takes a slot,
// and then receives the output.
func (c *Client) execSync(ctx context.Context, req *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // closes the stream, also if it was not read to its end
	// A unary call would receive its answer at once; a stream of one message waits
	// until RecvMsg, and the flow control holds back the rest. conns[0] is the
	// runtime's.
	stream, err := c.conns[0].NewStream(ctx, &grpc.StreamDesc{StreamName: "ExecSync"}, runtimeapi.RuntimeService_ExecSync_FullMethodName,
		grpc.MaxCallRecvMsgSize(maxExec))
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(req); err != nil {
		return nil, err
	}
	if _, err := stream.Header(); err != nil {
		return nil, err
	}
	select {
	// The command has ended: a command that runs for hours uses no slot.
	case c.execs <- struct{}{}:
		defer func() { <-c.execs }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	resp := &runtimeapi.ExecSyncResponse{}
	err = stream.RecvMsg(resp)
	// The same code may come from the runtime, so gRPC's words decide.
	if code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "received message larger than max") {
		return nil, &OutputError{Limit: maxExec}
	}
	return resp, err
}
