package pluginconn

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nodewright/nodewright/internal/wirecount"
)

// Limits limits the messages of a plugin. It is an encoding.CodecV2 for protobuf, and safe for
// concurrent use.
type Limits struct {
	// Bytes is the maximum size of a message.
	Bytes int
	// Fields is the maximum number of fields of a message, including those of nested messages: a
	// short message can have many empty fields, and each costs memory when it is decoded.
	Fields int
	// Shapes has the shape of each message type with nested messages, by the type's name. Entries
	// of maps are nested messages with a key and a value.
	Shapes map[protoreflect.Name]wirecount.Shape
}

// Marshal encodes a message.
func (Limits) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("message is a %T; want a protobuf message", v)
	}
	b, err := proto.Marshal(m)
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

// Unmarshal decodes a message. It returns wirecount.ErrTooMany, and decodes nothing, if the message
// has more than l.Fields fields. gRPC checks l.Bytes before.
func (l Limits) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("message is a %T; want a protobuf message", v)
	}
	b := data.Materialize()
	if err := wirecount.Check(b, l.Shapes[m.ProtoReflect().Descriptor().Name()], l.Fields); err != nil {
		return err
	}
	return proto.Unmarshal(b, m)
}

// Name returns "": requests have gRPC's default content type, without a subtype.
func (Limits) Name() string { return "" }
