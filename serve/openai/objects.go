package openai

import "encoding/json"

// A usage counts tokens.
type usage struct {
	Prompt     int               `json:"prompt_tokens"`
	Completion int               `json:"completion_tokens"`
	Total      int               `json:"total_tokens"`
	Details    promptDetails     `json:"prompt_tokens_details"`
	Written    completionDetails `json:"completion_tokens_details"`
}

// promptDetails tell how many tokens of the prompt had their keys and values already.
type promptDetails struct {
	Cached int `json:"cached_tokens"`
	Audio  int `json:"audio_tokens"`
}

type completionDetails struct {
	Reasoning int `json:"reasoning_tokens"`
	Audio     int `json:"audio_tokens"`
}

// A head is how every answer begins.
type head struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
}

// An answerObject is a whole answer, or a chunk of a stream.
type answerObject struct {
	head
	Choices any `json:"choices"`
	// Usage is null in the chunks before the one that has it.
	Usage any `json:"usage,omitempty"`
}

// null is there, where nil is not.
var null = json.RawMessage("null")

// A chatChoice is one of a chat's answers.
type chatChoice struct {
	Index    int         `json:"index"`
	Message  chatMessage `json:"message"`
	Logprobs any         `json:"logprobs"`
	Finish   string      `json:"finish_reason"`
}

type chatMessage struct {
	Role    string  `json:"role"`
	Content *string `json:"content"`
	Refusal *string `json:"refusal"`
	// Calls are those of tools.
	Calls []callObject `json:"tool_calls,omitempty"`
}

// A chatDelta is one of a stream of chats' answers.
type chatDelta struct {
	Index    int     `json:"index"`
	Delta    delta   `json:"delta"`
	Logprobs any     `json:"logprobs"`
	Finish   *string `json:"finish_reason"`
}

type delta struct {
	Role    string       `json:"role,omitempty"`
	Content *string      `json:"content,omitempty"`
	Calls   []callObject `json:"tool_calls,omitempty"`
}

// A callObject is a call of a tool. In streams it has an index, and may be a part.
type callObject struct {
	Index    *int           `json:"index,omitempty"`
	ID       string         `json:"id,omitempty"`
	Type     string         `json:"type,omitempty"`
	Function functionObject `json:"function"`
}

type functionObject struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// A logprobsObject tells how likely the tokens of a chat's answer were.
type logprobsObject struct {
	Content []tokenObject `json:"content"`
	Refusal any           `json:"refusal"`
}

// A tokenObject is a token. Its text may have a part of a character, so that its bytes are there too.
type tokenObject struct {
	Token   string        `json:"token"`
	Logprob float64       `json:"logprob"`
	Bytes   []int         `json:"bytes"`
	Top     []tokenObject `json:"top_logprobs,omitzero"`
}

// A textChoice is one of a completion's answers, or a part of it in a stream.
type textChoice struct {
	Index    int     `json:"index"`
	Text     string  `json:"text"`
	Logprobs any     `json:"logprobs"`
	Finish   *string `json:"finish_reason"`
}

// A textLogprobs tells how likely the tokens of a completion were.
type textLogprobs struct {
	Tokens   []string             `json:"tokens"`
	Logprobs []float64            `json:"token_logprobs"`
	Top      []map[string]float64 `json:"top_logprobs"`
	// Offsets are where the tokens begin in the text, in characters.
	Offsets []int `json:"text_offset"`
}
