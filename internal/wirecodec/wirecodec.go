// Package wirecodec decodes messages of untrusted gRPC servers: it refuses a
// message with too many fields before it decodes it.
package wirecodec

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nodewright/nodewright/internal/wirecount"
)

// Codec is an encoding.CodecV2 for protobuf. It is safe for concurrent use.
type Codec struct {
	// Fields is the maximum number of fields of a message, including those of
	// nested messages.
	Fields int
	// Shapes are the shapes of messages with nested messages, by their names.
	// Entries of maps are nested messages with a key and a value.
	Shapes map[protoreflect.Name]wirecount.Shape
}

// Marshal encodes a message.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("message is a %T; want a protobuf message", v)
	}
	b, err := proto.Marshal(m)
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

// Unmarshal decodes a message. For too many fields the error is
// wirecount.ErrTooMany.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("message is a %T; want a protobuf message", v)
	}
	b := data.Materialize()
	if err := wirecount.Check(b, c.Shapes[m.ProtoReflect().Descriptor().Name()], c.Fields); err != nil {
		return err
	}
	return proto.Unmarshal(b, m)
}

// Name returns "", since requests have the default content type, without a subtype.
func (Codec) Name() string { return "" }
