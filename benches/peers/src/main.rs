mod allocator;
mod case;
mod clock;
mod log;
mod random;
mod subject;
mod subjects;
mod threaded;
mod workloads;
fn main() {
    let text = std::env::args().nth(1).unwrap();
    let case: case::Case = serde_json::from_str(&text).unwrap();
    let sample = case::caught(|| subjects::run(&case).or_else(|| threaded::run(&case)).unwrap());
    println!("{}", serde_json::to_string(&sample).unwrap());
    println!("{:?}", sample.faults.to_string());
    std::process::exit(0);
}
