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

// Limits of answers, in bytes as they come over the socket. A larger one is
// refused before it is read, and its call fails; the connection stays.
const (
	// maxAnswer is of what is about one object.
	maxAnswer = 4 << 20
	// maxList is of what is about all objects. A container takes about 2 KiB
	// of a list; the kubelet's 16 MiB is less than the lists of a node with
	// many thousand dead ones.
	maxList = 64 << 20
	// maxExec is of a command's output, stdout and stderr together. Probes
	// show 10 KiB of it, and hooks log less.
	maxExec = 256 << 10
	// execsReceived is how many outputs are received at a time. What others
	// have to say waits in the runtime, but for a window of each.
	execsReceived = 16
	// maxObjects is how many messages an answer may be made of, nested ones
	// and entries of maps included: an empty one takes 2 bytes in an answer
	// and 200 in memory.
	maxObjects = 1 << 20
	// maxDepth is more than the CRI's messages are nested.
	maxDepth = 32
	// maxHeader is of what comes before and after an answer, a failure's
	// message among it, and maxError of what is kept of that message: many
	// places remember the last failure, and events the last ones.
	maxHeader = 256 << 10
	maxError  = 4 << 10
	// The windows bound what the runtime may send before it is read.
	streamWindow = 256 << 10
	connWindow   = 1 << 20
)

// forList lets an answer be as large as a list may be.
var forList = grpc.MaxCallRecvMsgSize(maxList)

// shortened is an error of a call without most of a message that is too long. Its
// code stays.
func shortened(err error) error {
	st, ok := status.FromError(err)
	if !ok || len(st.Message()) <= maxError {
		return err
	}
	return status.Error(st.Code(), cut(st.Message(), maxError)+" ...")
}

// boundedCodec is gRPC's own for protobuf, which counts the messages in an
// answer before it makes them.
type boundedCodec struct{ encoding.CodecV2 }

// newCodec returns a codec that encodes as gRPC does and decodes within the limits.
func newCodec() boundedCodec { return boundedCodec{encoding.GetCodecV2("proto")} }

// Unmarshal decodes an answer that is made of no more than maxObjects.
func (c boundedCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		old, isOld := v.(protoadapt.MessageV1)
		if !isOld {
			return fmt.Errorf("answer is taken as %T: want a protobuf message", v)
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

// count takes every message in b off left. What is no message of that kind is
// for the decoder to refuse.
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
			return fmt.Errorf("answer is made of too many objects: want at most %d", maxObjects)
		}
		inner, _ := protowire.ConsumeBytes(b)
		if err := count(inner, f.Message(), left, depth-1); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// OutputError is of a command whose output was larger than is taken. Whether
// it succeeded is not known.
type OutputError struct{ Limit int }

// OutputLimit is the limit in bytes.
func (e *OutputError) OutputLimit() int { return e.Limit }

func (e *OutputError) Error() string {
	return fmt.Sprintf("OutputTooLarge: the command wrote more than %d bytes", e.Limit)
}

// execSync makes the call in two steps: the output is received when the command
// has ended and there is room for it.
func (c *Client) execSync(ctx context.Context, req *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream, whatever is left in it
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
	// The command has ended by now: a command that runs for hours takes no place.
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
