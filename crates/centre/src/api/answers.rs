//! What the OpenAPI description says of answers beside what each handler names.

use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder};

/// Answers that every request may get: of the access rules, and of failures on our side.
const EVERYWHERE: &[(&str, &str)] = &[
    ("403", "no certificate of a person, or the rules forbid it"),
    ("500", "the centre could not complete the request"),
    ("503", "directory or registry cannot be asked now"),
    ("507", "the centre's disk is full"),
];

/// Adds to each operation the answers that every request may get, and to each answer what it says.
pub(super) fn complete(mut description: OpenApi) -> OpenApi {
    for path in description.paths.paths.values_mut() {
        for operation in [&mut path.get, &mut path.post].into_iter().flatten() {
            let answers = &mut operation.responses.responses;
            for (status, answer) in answers.iter_mut() {
                if let RefOr::T(answer) = answer
                    && answer.description.is_empty()
                {
                    answer.description = described(status).to_owned();
                }
            }
            for (status, text) in EVERYWHERE {
                let answer = problem(text);
                answers.entry((*status).to_owned()).or_insert(answer);
            }
            // Of whoever takes a minute; without a body.
            let late = ResponseBuilder::new().description("the answer took too long");
            answers.insert("408".to_owned(), RefOr::T(late.build()));
        }
    }
    description
}

/// Description of an answer that has none of its own; the standard demands one.
fn described(status: &str) -> &'static str {
    match status {
        "400" => "the request is malformed",
        "404" => "there is no such violation or medium",
        _ => "what was asked for",
    }
}

fn problem(text: &str) -> RefOr<Response> {
    let schema = Ref::from_schema_name("Problem");
    let content = ContentBuilder::new().schema(Some(schema)).build();
    let answer = ResponseBuilder::new()
        .description(text)
        .content("application/json", content);
    RefOr::T(answer.build())
}
